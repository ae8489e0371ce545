//go:build linux

package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/runner/host"
)

// TestTermKeepsTasks asks processes of the host to end while a command runs, as a service manager
// does: the command goes on, its exit code arrives, and the host ends once no command runs.
func TestTermKeepsTasks(t *testing.T) {
	for _, v := range []victim{worker, reaper, both} {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			ctx := limited(t)
			d, dir := open(t)
			h := newHome(t, dir)
			out := t.TempDir()
			l := waiting("t.1", out)
			l.Home = berth.Home{URL: h.url, Token: "x"}
			if _, err := d.Start(ctx, l); err != nil {
				t.Fatal(err)
			}
			wait(t, "output", func() bool { b, _ := os.ReadFile(l.LogFile); return string(b) == "up\n" })
			was := processesOf(ctx, t, dir)
			signalHost(was, v, syscall.SIGTERM)
			for range 20 { // the host answers, or the next one does
				if _, err := (retrying{d}).Observe(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(out, "go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			drivertest.Wait(ctx, t, retrying{d}, l.Task) // as a server looks at its tasks
			r := <-h.await(l.Task)
			if r.Exit == nil || *r.Exit != (berth.Exit{Code: 7, Reason: "the command ended with exit code 7"}) {
				t.Errorf("exit %+v, want code 7", r.Exit)
			}
			wait(t, "the end of the host", func() bool { return gone(was.PID) && gone(was.Reaper) })
			if o := drivertest.Wait(ctx, t, retrying{d}, l.Task); o.Exit == nil || o.Exit.Code != 7 {
				t.Errorf("the next host says %+v, want code 7", o.Exit)
			}
		})
	}
}

// TestTermOfTheMachine asks every process to end, those of the commands too, and then takes the
// power away.
func TestTermOfTheMachine(t *testing.T) {
	ctx := limited(t)
	d, dir := open(t)
	out := t.TempDir()
	obeys, ignores := waiting("obeys.1", out), waiting("ignores.1", out)
	ignores.Command = "trap '' TERM; " + ignores.Command
	// A server that is away is not waited for for long: there may be none any more.
	away := berth.Home{URL: "unix://" + filepath.Join(dir, "api.sock"), Token: "x"}
	obeys.Home, ignores.Home = away, away
	for _, l := range []*berth.Launch{&obeys, &ignores} {
		if _, err := d.Start(ctx, *l); err != nil {
			t.Fatal(err)
		}
		wait(t, "output", func() bool { b, _ := os.ReadFile(l.LogFile); return string(b) == "up\n" })
	}
	was := processesOf(ctx, t, dir)
	signalHost(was, both, syscall.SIGTERM)
	for _, l := range []berth.Launch{obeys, ignores} {
		for _, pid := range marked(filepath.Join(dir, "tasks", string(l.Task))) {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
	}
	end := berth.Exit{Code: 143, Signal: "SIGTERM", Reason: "the command was ended by SIGTERM"}
	if o := drivertest.Wait(ctx, t, d, obeys.Task); o.Exit == nil || *o.Exit != end {
		t.Errorf("exit %+v, want %+v", o.Exit, end)
	}
	if gone(was.PID) || gone(was.Reaper) {
		t.Error("the host ended while a command ran")
	}
	_ = syscall.Kill(was.Reaper, syscall.SIGKILL)
	_ = syscall.Kill(was.PID, syscall.SIGKILL)
	wait(t, "the processes to be gone", func() bool {
		for _, pid := range marked(filepath.Join(dir, "tasks", string(ignores.Task))) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return gone(was.PID) && gone(was.Reaper) && len(marked(filepath.Join(dir, "tasks", string(ignores.Task)))) == 0
	})
	if o := drivertest.Wait(ctx, t, d, obeys.Task); o.Exit == nil || *o.Exit != end {
		t.Errorf("after the start of the machine: exit %+v, want %+v", o.Exit, end)
	}
	// Power goes for all at once; here a reaper may be there again before the command is killed,
	// and then it knows how that ended.
	o := drivertest.Wait(ctx, t, d, ignores.Task)
	if o.Exit == nil || (o.Exit.Cause != "lost" && o.Exit.Signal != "SIGKILL") {
		t.Errorf("after the start of the machine: exit %+v, want lost, or killed", o.Exit)
	}
}

// waiting is a task that says "up" and ends with exit code 7 when the file "go" is in dir.
func waiting(id berth.TaskID, dir string) berth.Launch {
	return berth.Launch{
		Task: id, LogFile: filepath.Join(dir, string(id)+".log"),
		Command: fmt.Sprintf("echo up; while [ ! -e %s/go ]; do sleep 0.02; done; exit 7", dir),
	}
}

// processesOf is the host of dir.
func processesOf(ctx context.Context, t *testing.T, dir string) host.Info {
	t.Helper()
	c := host.NewClient(dir)
	defer c.Close()
	info, err := c.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func signalHost(at host.Info, v victim, s syscall.Signal) {
	if v == both || v == reaper {
		_ = syscall.Kill(at.Reaper, s)
	}
	if v == both || v == worker {
		_ = syscall.Kill(at.PID, s)
	}
}

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// TestKilledHosts kills both processes of the host, or the reaper twice, while a command runs: the
// next ones find it, and learn its exit code where the kernel tells them.
func TestKilledHosts(t *testing.T) {
	for name, strike := range map[string]func(ctx context.Context, t *testing.T, dir string) (next func(host.Info) bool){
		"both": func(ctx context.Context, t *testing.T, dir string) func(host.Info) bool {
			first := processesOf(ctx, t, dir)
			signalHost(first, both, syscall.SIGKILL)
			return func(now host.Info) bool { return now.Reaper != first.Reaper && now.PID != first.PID }
		},
		"reaper twice": func(ctx context.Context, t *testing.T, dir string) func(host.Info) bool {
			first := processesOf(ctx, t, dir)
			signalHost(first, reaper, syscall.SIGKILL)
			c := host.NewClient(dir)
			defer c.Close()
			var second host.Info
			wait(t, "another reaper", func() (ok bool) {
				var err error
				second, err = c.Info(ctx)
				return err == nil && second.Reaper == first.PID && second.PID != first.PID
			})
			signalHost(second, reaper, syscall.SIGKILL)
			return func(now host.Info) bool { return now.Reaper == second.PID && now.PID != second.PID }
		},
	} {
		for _, end := range []struct {
			name, command string
			exit          berth.Exit
		}{
			{"code", "exit 7", berth.Exit{Code: 7, Reason: "the command ended with exit code 7"}},
			{"signal", "kill -USR1 $$", berth.Exit{Code: 138, Signal: "SIGUSR1", Reason: "the command was ended by SIGUSR1"}},
		} {
			t.Run(name+"/"+end.name, func(t *testing.T) {
				t.Parallel()
				ctx := limited(t)
				d, dir := open(t)
				out := t.TempDir()
				l := waiting("t.1", out)
				l.Command = strings.Replace(l.Command, "exit 7", end.command, 1)
				if _, err := d.Start(ctx, l); err != nil {
					t.Fatal(err)
				}
				wait(t, "output", func() bool { b, _ := os.ReadFile(l.LogFile); return string(b) == "up\n" })
				next := strike(ctx, t, dir)
				c := host.NewClient(dir)
				defer c.Close()
				wait(t, "the next host", func() bool {
					all, err := (retrying{d}).Observe(ctx)
					if err != nil || len(all) != 1 || all[0].State != berth.TaskRunning {
						return false
					}
					now, err := c.Info(ctx)
					return err == nil && next(now)
				})
				wait(t, "the next host to have the task", func() bool {
					all, err := (retrying{d}).Observe(ctx)
					return err == nil && len(all) == 1 && all[0].State == berth.TaskRunning
				})
				if err := os.WriteFile(filepath.Join(out, "go"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				want := end.exit
				if !tellsExits(t) {
					want = berth.Exit{Code: -1, Cause: "lost", Reason: "its exit code is not known: the processes that could have learnt it were killed while it ran"}
				}
				if o := drivertest.Wait(ctx, t, retrying{d}, l.Task); o.Exit == nil || *o.Exit != want {
					t.Errorf("exit %+v, want %+v", o.Exit, want)
				}
			})
		}
	}
}

// tellsExits says whether this kernel tells how a process ended to whoever has a pidfd of it.
func tellsExits(t *testing.T) bool {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	return major > 6 || major == 6 && minor >= 15
}
