//go:build !windows

package local_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/local"
	"github.com/berthml/berth/internal/runner/host"
)

// home is a server that takes reports and keeps nothing.
type home struct {
	url  string
	mu   sync.Mutex
	done map[berth.TaskID]chan berth.Report
	n    atomic.Int64
}

func newHome(t testing.TB, dir string) *home {
	h := &home{url: "unix://" + filepath.Join(dir, "api.sock"), done: map[berth.TaskID]chan berth.Report{}}
	l, err := net.Listen("unix", filepath.Join(dir, "api.sock"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var rs []berth.Report
		if err := json.NewDecoder(r.Body).Decode(&rs); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		h.n.Add(int64(len(rs)))
		for _, rep := range rs {
			if rep.State == berth.TaskDone {
				select {
				case h.await(rep.Task) <- rep:
				default: // told again after a crash
				}
			}
		}
		fmt.Fprint(w, "{}")
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return h
}

// await is where the last report of a task comes.
func (h *home) await(id berth.TaskID) chan berth.Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.done[id]
	if c == nil {
		c = make(chan berth.Report, 1)
		h.done[id] = c
	}
	return c
}

func (h *home) forget(id berth.TaskID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.done, id)
}

// cpu is the processor time a process has used itself.
func cpu(t testing.TB, pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var u, s int64
	fmt.Sscan(f[11], &u)
	fmt.Sscan(f[12], &s)
	return time.Duration(u+s) * 10 * time.Millisecond
}

// BenchmarkTasks runs /bin/true over and over, several at a time, each one started, reported and
// removed.
func BenchmarkTasks(b *testing.B) {
	for _, c := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("parallel=%d", c), func(b *testing.B) {
			d, dir := open(b)
			h := newHome(b, dir)
			logs := b.TempDir()
			ctx := context.Background()
			if _, err := d.Probe(ctx); err != nil {
				b.Fatal(err)
			}
			hc := host.NewClient(dir)
			defer hc.Close()
			info, err := hc.Info(ctx)
			if err != nil {
				b.Fatal(err)
			}
			var n atomic.Int64
			var mu sync.Mutex
			var first, whole []time.Duration
			before, mine := cpu(b, info.PID), cpu(b, os.Getpid())
			b.ResetTimer()
			var wg sync.WaitGroup
			for range c {
				wg.Go(func() {
					for {
						i := n.Add(1)
						if i > int64(b.N) {
							return
						}
						id := berth.TaskID(fmt.Sprintf("bench-%d.1", i))
						l := berth.Launch{
							Task: id, Job: "bench", Attempt: 1, Command: "/bin/true", LogFile: filepath.Join(logs, string(id)),
							Home:      berth.Home{URL: h.url, Token: "0123456789abcdef0123456789abcdef"},
							Artifacts: "https://127.0.0.1:1/st.blob.berth/azureml/ExperimentRun/dcid.bench?sig=x",
							Workspace: berth.Workspace{Subscription: "s", Group: "g", Name: "w"},
						}
						began := time.Now()
						hd, err := d.Start(ctx, l)
						if err != nil {
							b.Error(err)
							return
						}
						r := <-h.await(id)
						took := time.Since(began)
						h.forget(id)
						wg.Go(func() { // as the server does: nobody waits for it
							if err := d.Remove(ctx, hd); err != nil {
								b.Error(err)
							}
						})
						mu.Lock()
						first = append(first, r.Times.Started.Sub(began))
						whole = append(whole, took)
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			slices.Sort(first)
			slices.Sort(whole)
			b.ReportMetric(float64(cpu(b, info.PID)-before)/float64(b.N)/1e3, "host-cpu-us/op")
			b.ReportMetric(float64(cpu(b, os.Getpid())-mine)/float64(b.N)/1e3, "driver-cpu-us/op")
			b.ReportMetric(float64(first[len(first)/2])/1e3, "p50-exec-us")
			b.ReportMetric(float64(whole[len(whole)/2])/1e3, "p50-done-us")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
			b.ReportMetric(float64(h.n.Load())/float64(b.N), "reports/op")
		})
	}
}

// BenchmarkBacklog hands over many tasks at once to a host that runs two at a time.
func BenchmarkBacklog(b *testing.B) {
	dir, err := os.MkdirTemp("", "bl")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	x, err := local.Open(driver.Config{Name: "local", Dir: dir, Host: []string{os.Args[0], "_host"}, Slots: 2})
	if err != nil {
		b.Fatal(err)
	}
	d := x.(*local.Driver)
	ctx := context.Background()
	defer d.Shutdown(ctx)
	h := newHome(b, dir)
	logs := b.TempDir()
	if _, err := d.Probe(ctx); err != nil {
		b.Fatal(err)
	}
	hc := host.NewClient(dir)
	defer hc.Close()
	info, err := hc.Info(ctx)
	if err != nil {
		b.Fatal(err)
	}
	before, mine := cpu(b, info.PID), cpu(b, os.Getpid())
	b.ResetTimer()
	var n atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for {
				i := n.Add(1)
				if i > int64(b.N) {
					return
				}
				id := berth.TaskID(fmt.Sprintf("bench-%d.1", i))
				l := berth.Launch{
					Task: id, Job: "bench", Attempt: 1, Command: "/bin/true", LogFile: filepath.Join(logs, string(id)),
					Home:      berth.Home{URL: h.url, Token: "0123456789abcdef0123456789abcdef"},
					Artifacts: "https://127.0.0.1:1/st.blob.berth/azureml/ExperimentRun/dcid.bench?sig=x",
					Workspace: berth.Workspace{Subscription: "s", Group: "g", Name: "w"},
				}
				hd, err := d.Start(ctx, l)
				if err != nil {
					b.Error(err)
					return
				}
				wg.Go(func() {
					<-h.await(id)
					h.forget(id)
					if err := d.Remove(ctx, hd); err != nil {
						b.Error(err)
					}
				})
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(cpu(b, info.PID)-before)/float64(b.N)/1e3, "host-cpu-us/op")
	b.ReportMetric(float64(cpu(b, os.Getpid())-mine)/float64(b.N)/1e3, "driver-cpu-us/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	b.ReportMetric(float64(h.n.Load())/float64(b.N), "reports/op")
}
