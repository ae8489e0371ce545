//go:build linux

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/cluster"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/data/blobtest"
	"github.com/berthml/berth/internal/runner/host"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "_host" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM) // as the command does
		defer stop()
		if err := host.Main(ctx, os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // a race-enabled host would take a second to end
	os.Exit(m.Run())
}

// open makes a driver whose nodes end with the test.
func open(t testing.TB) (*cluster.Driver, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "bc")
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, "nodes")
	d := reopen(t, dir)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if t.Failed() {
			logs, _ := filepath.Glob(filepath.Join(dir, "*", "host.log"))
			for _, l := range logs {
				b, _ := os.ReadFile(l)
				t.Logf("%s:\n%s", l, b)
			}
		}
		info, err := d.Probe(ctx)
		if err != nil {
			t.Error(err)
		}
		for _, n := range info.Nodes {
			if err := d.RemoveNode(ctx, n.Name); err != nil {
				t.Error(err)
			}
		}
		drivertest.Leaks(t, dir, "berth-node-"+cluster.GroupName(dir))
		os.RemoveAll(filepath.Dir(dir))
	})
	return d, dir
}

func reopen(t testing.TB, dir string) *cluster.Driver {
	t.Helper()
	d, err := cluster.Open(driver.Config{Name: "cluster", Dir: dir, Host: []string{os.Args[0], "_host"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.(*cluster.Driver).Close() })
	return d.(*cluster.Driver)
}

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func fixture(t *testing.T) drivertest.Fixture {
	d, dir := open(t)
	return fixtureIn(t, d, dir)
}

// fixtureIn is what the tests of the contract know about nodes in a directory.
func fixtureIn(t *testing.T, d *cluster.Driver, dir string) drivertest.Fixture {
	logs := filepath.Dir(dir) // goes after the nodes
	n, blobs := 0, blobtest.New(t)
	return drivertest.Fixture{
		Driver: d,
		Launch: func(command string) berth.Launch {
			n++
			id := berth.TaskID(fmt.Sprintf("job-%d.1", n))
			return berth.Launch{
				Task: id, Job: fmt.Sprintf("job-%d", n), Attempt: 1, Command: command, LogFile: filepath.Join(logs, string(id)), Node: "first",
			}
		},
		Reopen: func(t *testing.T) driver.Driver { return reopen(t, dir) },
		Kill:   func(t testing.TB, node string) { kill(t, filepath.Join(dir, node)) },
		Outputs: func(l *berth.Launch) func() map[string]string {
			l.Outputs = map[string]berth.LaunchOutput{"model": {Type: "uri_folder", URL: blobs.At("model")}}
			return func() map[string]string { return blobs.All("model/") }
		},
		Away: func(t *testing.T) func() {
			c := host.NewClient(filepath.Join(dir, "first"))
			defer c.Close()
			info, err := c.Info(t.Context())
			if err == nil {
				err = syscall.Kill(info.PID, syscall.SIGKILL)
			}
			if err != nil {
				t.Fatal(err)
			}
			return func() {}
		},
		Left: func(*testing.T) []string {
			left, _ := filepath.Glob(filepath.Join(dir, "*", "tasks", "*"))
			return left
		},
	}
}

// kill kills every process of a node: those of its tasks first, so that nobody can tell how they
// ended.
func kill(t testing.TB, dir string) {
	t.Helper()
	c := host.NewClient(dir)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	info, err := c.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	pids := []int{info.Reaper, info.PID}
	for _, pid := range runner.Belonging(dir)[dir] {
		if !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Fixture {
		f := fixture(t)
		addFirst(t, f.Driver)
		f.Full = fullFixture
		return f
	})
}

func addFirst(t *testing.T, d driver.Driver) {
	t.Helper()
	if err := d.(driver.Scaler).AddNode(t.Context(), driver.NodeSpec{Name: "first", Slots: 4, Memory: 1 << 30, CPUs: 2}); err != nil {
		t.Fatal(err)
	}
}

// fullFixture is a node whose disk is full until it is freed.
func fullFixture(t *testing.T) (drivertest.Fixture, func()) {
	d, dir := open(t)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	fill, free := drivertest.SmallDisk(t, dir, "4m")
	t.Cleanup(func() { // before the disk goes
		if err := d.RemoveNode(context.WithoutCancel(t.Context()), "first"); err != nil {
			t.Error(err)
		}
	})
	addFirst(t, d)
	fill()
	return fixtureIn(t, d, dir), free
}

func TestScale(t *testing.T) { drivertest.Scale(t, fixture) }
