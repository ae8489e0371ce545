package peer

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthml/berth/bench/measure"
)

// Exec times fork and exec alone: from the call to the first instruction of stamp, in milliseconds.
func Exec(ctx context.Context, stamp string, pipe *Pipe, n int) ([]float64, error) {
	var v []float64
	for range n {
		t := time.Now()
		if err := exec.CommandContext(ctx, stamp, pipe.Path).Run(); err != nil {
			return nil, err
		}
		first, err := pipe.Wait(5 * time.Second)
		if err != nil {
			return nil, err
		}
		v = append(v, Ms(first.Sub(t)))
	}
	return v, nil
}

// Sync times fdatasync of 4 KiB into a file that is long enough already, in milliseconds: what one
// durable answer costs at least.
func Sync(dir string, n int) ([]float64, error) {
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.Write(make([]byte, 1<<20)); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	page := make([]byte, 4096)
	var v []float64
	for i := range n {
		page[0] = byte(i)
		t := time.Now()
		if _, err := f.WriteAt(page, int64(i%256)*4096); err != nil {
			return nil, err
		}
		if err := datasync(f); err != nil {
			return nil, err
		}
		v = append(v, Ms(time.Since(t)))
	}
	return v, nil
}

// Result is one round of many short commands.
type Result struct {
	PerSecond float64
	CPU       float64 // milliseconds per command; NaN when not known
}

// Xargs runs /bin/true n times with xargs -P2: everything, the commands included, is counted.
func Xargs(ctx context.Context, group *measure.Group, n int) (Result, error) {
	g := group.Sub("xargs")
	defer g.Close()
	cmd := g.Command(ctx, "xargs", "-P2", "-n1", "/bin/true")
	var in strings.Builder
	for i := range n {
		fmt.Fprintln(&in, i)
	}
	cmd.Stdin = strings.NewReader(in.String())
	t := time.Now()
	err := cmd.Run()
	wall := time.Since(t)
	if err != nil {
		return Result{}, fmt.Errorf("xargs: %w", err)
	}
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if used, ok := g.Usage(); ok {
		cpu = used
	}
	return Result{PerSecond: float64(n) / wall.Seconds(), CPU: Ms(cpu) / float64(n)}, nil
}

// XargsVersion is what xargs says of itself.
func XargsVersion(ctx context.Context) string {
	out, _ := exec.CommandContext(ctx, "xargs", "--version").Output()
	line, _, _ := strings.Cut(string(out), "\n")
	if i := strings.LastIndex(line, " "); i > 0 {
		return line[i+1:]
	}
	return ""
}

// Forks runs /bin/true n times from Go, two at a time: the floor of anything that starts real
// processes.
func Forks(ctx context.Context, n int) (Result, error) {
	var next atomic.Int64
	var failed atomic.Value
	var cpu atomic.Int64
	var wg sync.WaitGroup
	t := time.Now()
	for range 2 {
		wg.Go(func() {
			for next.Add(1) <= int64(n) {
				cmd := exec.CommandContext(ctx, "/bin/true")
				if err := cmd.Run(); err != nil {
					failed.Store(err)
					return
				}
				cpu.Add(int64(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()))
			}
		})
	}
	wg.Wait()
	wall := time.Since(t)
	if err, ok := failed.Load().(error); ok {
		return Result{}, err
	}
	return Result{PerSecond: float64(n) / wall.Seconds(), CPU: Ms(time.Duration(cpu.Load())) / float64(n)}, nil
}

// freePorts finds a range of n ports on loopback that nobody listens at.
func freePorts(n int) (int, error) {
	for base := 17000 + os.Getpid()%97*100; base < 60000; base += 100 {
		free := true
		for p := base; p < base+n && free; p++ {
			free = !listening(p)
		}
		if free {
			return base, nil
		}
	}
	return 0, fmt.Errorf("no %d free ports in a row", n)
}

func listening(port int) bool {
	hex := fmt.Sprintf(":%04X ", port)
	for _, f := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(f)
		for l := range strings.Lines(string(b)) {
			if strings.Contains(l, hex) {
				return true
			}
		}
	}
	return false
}

func atoi(s string) int {
	n, _ := strconv.Atoi(strings.TrimSpace(s))
	return n
}
