//go:build !windows

package local_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/local"
	"github.com/berthml/berth/internal/runner/data/blobtest"
	"github.com/berthml/berth/internal/runner/host"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "_host" {
		if err := local.HostMain(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // a race-enabled host would take a second to end
	os.Exit(m.Run())
}

// open makes a driver with a host of its own, which ends with the test.
func open(t testing.TB) (*local.Driver, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "bl")
	if err != nil {
		t.Fatal(err)
	}
	d := reopen(t, dir)
	t.Cleanup(func() {
		c := host.NewClient(dir)
		defer c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if all, err := c.Tasks(ctx); err == nil {
			for _, s := range all {
				_ = c.Stop(ctx, s.Task, host.Stop{Grace: time.Millisecond})
			}
		}
		if t.Failed() {
			b, _ := os.ReadFile(filepath.Join(dir, "host.log"))
			t.Logf("host.log:\n%s", b)
			b, _ = os.ReadFile(filepath.Join(dir, "journal"))
			t.Logf("journal:\n%s", b)
			b, _ = os.ReadFile(filepath.Join(dir, "reaped"))
			t.Logf("reaped:\n%s", b)
		}
		if err := host.Shutdown(ctx, dir); err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	return d, dir
}

func reopen(t testing.TB, dir string) *local.Driver {
	t.Helper()
	d, err := local.Open(driver.Config{Name: "local", Dir: dir, Host: []string{os.Args[0], "_host"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.(*local.Driver).Close() })
	return d.(*local.Driver)
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Fixture {
		d, dir := open(t)
		f := fixtureOf(t, d, dir)
		f.Full = func(t *testing.T) (drivertest.Fixture, func()) { return fullFixture(t) }
		return f
	})
}

// fixtureOf is what the tests of the contract know about a host in a directory.
func fixtureOf(t *testing.T, d driver.Driver, dir string) drivertest.Fixture {
	t.Helper()
	logs, n, blobs := t.TempDir(), 0, blobtest.New(t)
	return drivertest.Fixture{
		Driver: d,
		Launch: func(command string) berth.Launch {
			n++
			id := berth.TaskID(fmt.Sprintf("job-%d.1", n))
			return berth.Launch{Task: id, Job: fmt.Sprintf("job-%d", n), Attempt: 1, Command: command, LogFile: filepath.Join(logs, string(id))}
		},
		Reopen: func(t *testing.T) driver.Driver { return reopen(t, dir) },
		Outputs: func(l *berth.Launch) func() map[string]string {
			l.Outputs = map[string]berth.LaunchOutput{"model": {Type: "uri_folder", URL: blobs.At("model")}}
			return func() map[string]string { return blobs.All("model/") }
		},
		Away: func(t *testing.T) func() {
			killWorker(t, dir)
			return func() {}
		},
		Left: func(*testing.T) []string {
			left, _ := filepath.Glob(filepath.Join(dir, "tasks", "*"))
			return left
		},
	}
}

// killWorker kills the process of a host that answers.
func killWorker(t *testing.T, dir string) {
	t.Helper()
	c := host.NewClient(dir)
	defer c.Close()
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(info.PID)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
}
