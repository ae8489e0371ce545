package storage

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth/e2e/world"
)

// workers are the processes that prepare tasks and keep what they leave, of all runner hosts of the
// home.
func (y *story) workers() (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(b, []byte("\x00_host\x00")) || !bytes.Contains(b, []byte(y.s.Home)) || !bytes.Contains(b, []byte("\x00--role\x00worker\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(f, "/")[2]); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killWorkers kills them.
func (y *story) killWorkers() {
	y.t.Helper()
	pids := y.workers()
	if len(pids) == 0 {
		y.t.Fatal("no runner host is there")
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			y.t.Fatal(err)
		}
	}
}

// gate stops requests to storage after some of them.
type gate struct {
	reached chan struct{}
	open    chan struct{}
	once    sync.Once

	mu   sync.Mutex
	left int
}

// hold lets some requests of a method to a path through; those after them wait until it is opened.
func (p *proxy) hold(method, path string, pass int) *gate {
	g := &gate{reached: make(chan struct{}), open: make(chan struct{}), left: pass}
	p.answer(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != method || !strings.Contains(r.URL.Path, path) {
			return false
		}
		g.mu.Lock()
		g.left--
		stop := g.left < 0
		g.mu.Unlock()
		if stop {
			g.once.Do(func() { close(g.reached) })
			select {
			case <-g.open:
			case <-r.Context().Done():
			}
		}
		return false
	})
	return g
}

// wait waits until requests wait.
func (g *gate) wait(t *testing.T) {
	t.Helper()
	select {
	case <-g.reached:
	case <-time.After(2 * time.Minute):
		t.Fatal("the storage was not asked")
	}
}

// fault is what is killed while data is on its way.
type fault struct {
	on   string // the compute
	kill func(y *story, node string)
	lost bool // the disk is lost too
}

var faults = map[string]fault{
	"server": {on: "local", kill: func(y *story, _ string) {
		y.kill()
		y.s = world.StartIn(y.t, y.s.Home)
	}},
	"runner": {on: "local", kill: func(y *story, _ string) { y.killWorkers() }},
	"host":   {on: "local", kill: func(y *story, _ string) { y.killBelow("host") }},
	"both": {on: "local", kill: func(y *story, _ string) {
		y.kill()
		y.killWorkers()
		y.s = world.StartIn(y.t, y.s.Home)
	}},
	"node":          {on: "cpu", kill: (*story).killBelow},
	"node and disk": {on: "cpu", kill: (*story).lose, lost: true},
}

// begin begins the story of a fault.
func (f fault) begin(t *testing.T, s *s3) (y *story, node string) {
	t.Helper()
	y = begin(t, "")
	y.berth("datastore", "create", "--file", y.file("ds.yaml", s.datastore("lake", s3Secret)))
	if f.on == "cpu" {
		node = y.node()
	}
	return y, node
}

// TestKilledWhileStaging: a server, a runner host or a node that is killed while a task's input is
// fetched costs time only. The job reads every byte; where the node is lost it does so on another,
// and says why.
func TestKilledWhileStaging(t *testing.T) {
	s := startS3(t)
	sum := sha256.New()
	for i := range 40 {
		text := fillers(i, 50_000)
		p := filepath.Join(s.bucket, "in", fmt.Sprintf("%03d", i))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, text, 0o600); err != nil {
			t.Fatal(err)
		}
		sum.Write(text)
	}
	want := fmt.Sprintf("%x", sum.Sum(nil))
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			y, node := f.begin(t, s)
			g := s.hold(http.MethodGet, "/in/", 12)
			y.berth("job", "create", "--file", y.file("job.yaml", y.yaml("reads", `
compute: azureml:`+f.on+`
command: cat ${{inputs.i}}/* | sha256sum
inputs:
  i: {type: uri_folder, path: azureml://datastores/lake/paths/in, mode: download}
`)))
			g.wait(t)
			f.kill(y, node)
			close(g.open)
			if status, told := y.end("reads"); status != "Completed" || !strings.Contains(told, want) {
				t.Errorf("%s, want %s:\n%s", status, want, told)
			}
			if events := y.berth("events", "jobs/reads"); f.lost && !strings.Contains(events, "is gone: its machine no longer has it") {
				t.Errorf("the events do not say why there was a second attempt:\n%s", events)
			}
		})
	}
}

// TestKilledWhileKeeping: a server, a runner host or a node that is killed while outputs are sent
// to storage costs time only. Every file is there whole when the job is completed. Where the node
// is lost with its disk the job fails, says why, and names its output as partial; what there is of
// it is whole.
func TestKilledWhileKeeping(t *testing.T) {
	s := startS3(t)
	for name, f := range faults {
		for _, mode := range []string{"upload", "rw_mount"} {
			t.Run(name+" "+mode, func(t *testing.T) {
				y, node := f.begin(t, s)
				out := strings.ReplaceAll("out-"+name+"-"+mode, " ", "-")
				g := s.hold(http.MethodPut, "/"+out+"/", 7)
				y.berth("job", "create", "--file", y.file("job.yaml", y.yaml("writes", `
compute: azureml:`+f.on+`
command: for i in $(seq 20); do head -c 300000 /dev/zero | tr '\0' $(printf "\\$(printf %o $((64 + i)))") > ${{outputs.o}}/$i; done; head -c 70000000 /dev/zero > ${{outputs.o}}/large
outputs:
  o: {type: uri_folder, path: azureml://datastores/lake/paths/`+out+`, mode: `+mode+`}
`)))
				g.wait(t)
				f.kill(y, node)
				close(g.open)
				status, told := y.end("writes")
				switch {
				case f.lost:
					if status != "Failed" || !strings.Contains(told, "before what the command left was uploaded") || !strings.Contains(told, "output o: partial, with the files that were uploaded") {
						t.Errorf("%s:\n%s", status, told)
					}
				case status != "Completed":
					t.Fatalf("%s:\n%s", status, told)
				}
				for i := 1; i <= 20; i++ {
					p := filepath.Join(out, strconv.Itoa(i))
					if _, err := os.Stat(filepath.Join(s.bucket, p)); err != nil && f.lost {
						continue
					}
					if got := s.get(t, p); got != strings.Repeat(string(rune(64+i)), 300000) {
						t.Errorf("file %d has %d bytes", i, len(got))
					}
				}
				if info, err := os.Stat(filepath.Join(s.bucket, out, "large")); f.lost == (err == nil) || err == nil && info.Size() != 70000000 {
					t.Errorf("the large file: %v, %v", info, err)
				}
			})
		}
	}
}

// fillers are bytes that no other file has.
func fillers(seed, n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(uint64(seed), 5))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// narrow passes connections on, until so many bytes went to the server: then nothing passes until
// the limit is raised.
type narrow struct {
	net.Listener
	reached chan struct{}

	mu    sync.Mutex
	moved *sync.Cond
	sent  int64
	limit int64
}

func startNarrow(t *testing.T, target string) *narrow {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &narrow{Listener: l, limit: 1 << 62}
	n.moved = sync.NewCond(&n.mu)
	t.Cleanup(func() {
		l.Close()
		n.allow(1 << 62)
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go n.pass(c, target)
		}
	}()
	return n
}

func (n *narrow) pass(c net.Conn, target string) {
	defer c.Close()
	up, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer up.Close()
	go func() {
		_, _ = io.Copy(c, up)
		c.Close()
	}()
	buf := make([]byte, 32<<10)
	for {
		k, err := c.Read(buf)
		if err != nil {
			return
		}
		n.mu.Lock()
		for n.sent >= n.limit {
			if n.reached != nil {
				close(n.reached)
				n.reached = nil
			}
			n.moved.Wait()
		}
		n.sent += int64(k)
		n.mu.Unlock()
		if _, err := up.Write(buf[:k]); err != nil {
			return
		}
	}
}

// allow lets so many bytes more through, and returns what is closed when they went and more want
// to.
func (n *narrow) allow(more int64) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent, n.limit, n.reached = 0, more, make(chan struct{})
	n.moved.Broadcast()
	return n.reached
}

// TestKilledWhileUploading: an upload from the command line that is cut because the command, or the
// server, is killed is not an asset; the next try sends what is missing, and all is there.
func TestKilledWhileUploading(t *testing.T) {
	y := begin(t, "")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(y.s.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	n := startNarrow(t, net.JoinHostPort("127.0.0.1", port))
	ann := y.as("ann")
	_, own, err := net.SplitHostPort(n.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ann.env[0] = "BERTH_URL=" + strings.Replace(y.s.URL, ":"+port, ":"+own, 1)
	ann.env = append(ann.env, "XDG_CACHE_HOME="+t.TempDir())
	dir, sum := t.TempDir(), sha256.New()
	const files, size = 240, 100_000
	for i := range files {
		text := fillers(1000+i, size)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d", i)), text, 0o600); err != nil {
			t.Fatal(err)
		}
		sum.Write(text)
	}
	upload := []string{"data", "create", "--name", "set", "--version", "1", "--path", dir, "--type", "uri_folder"}
	for _, victim := range []string{"command", "server"} {
		reached := n.allow(files * size / 3)
		cmd := ann.command(upload...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-reached:
		case <-time.After(2 * time.Minute):
			t.Fatal("the upload does not go on")
		}
		if victim == "command" {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		} else {
			y.kill()
		}
		n.allow(1 << 62)
		if victim == "server" {
			y.s = world.StartIn(t, y.s.Home)
		}
		err := cmd.Wait()
		if victim == "command" && err == nil {
			t.Fatalf("the %s was killed, and the upload succeeded", victim)
		}
		if out, shown := y.command("data", "show", "--name", "set", "--version", "1").CombinedOutput(); shown == nil && err != nil {
			t.Errorf("after the %s was killed there is\n%s", victim, out)
		}
	}
	n.allow(1 << 62)
	out, err := ann.command(upload...).CombinedOutput()
	n.mu.Lock()
	sent := n.sent
	n.mu.Unlock()
	if err != nil && !strings.Contains(string(out), "already exists") {
		t.Fatalf("%v\n%s", err, out)
	}
	if sent > files*size*3/4 {
		t.Errorf("the last try sent %d of %d bytes", sent, files*size)
	}
	told := y.completed("reads", "command: cat ${{inputs.i}}/* | sha256sum\ninputs:\n  i: {type: uri_folder, path: \"azureml:set:1\"}\n")
	if want := fmt.Sprintf("%x", sum.Sum(nil)); !strings.Contains(told, want) {
		t.Errorf("want %s:\n%s", want, told)
	}
}
