//go:build linux

package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/local"
	"github.com/berthml/berth/internal/runner/host"
)

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("waiting for %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestServerAway lets tasks end while no server listens, and kills the host on top: nothing is
// lost.
func TestServerAway(t *testing.T) {
	ctx := limited(t)
	d, dir := open(t)
	url := "unix://" + filepath.Join(dir, "api.sock")
	logs := t.TempDir()
	const n = 5
	for i := range n {
		id := berth.TaskID(fmt.Sprintf("t%d.1", i))
		l := berth.Launch{Task: id, Command: fmt.Sprint("exit ", i), LogFile: filepath.Join(logs, string(id)), Home: berth.Home{URL: url, Token: "x"}}
		if _, err := d.Start(ctx, l); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		drivertest.Wait(ctx, t, d, berth.TaskID(fmt.Sprintf("t%d.1", i)))
	}
	kill(ctx, t, dir, both)
	if _, err := d.Observe(ctx); err != nil { // starts the next one
		t.Fatal(err)
	}
	h := newHome(t, dir)
	for i := range n {
		r := <-h.await(berth.TaskID(fmt.Sprintf("t%d.1", i)))
		if r.Exit == nil || r.Exit.Code != i {
			t.Errorf("%s: %+v", r.Task, r.Exit)
		}
	}
	all, err := d.Observe(ctx)
	if err != nil || len(all) != n {
		t.Errorf("%d tasks (%v): they stay until they are removed", len(all), err)
	}
}

// TestRestartedMachine pretends that the machine was restarted while a task ran.
func TestRestartedMachine(t *testing.T) {
	ctx := limited(t)
	d, dir := open(t)
	log := filepath.Join(t.TempDir(), "log")
	l := berth.Launch{Task: "t.1", Command: "echo x; sleep 600", LogFile: log}
	done := berth.Launch{Task: "done.1", Command: "exit 7", LogFile: log + "2"}
	for _, l := range []berth.Launch{l, done} {
		if _, err := d.Start(ctx, l); err != nil {
			t.Fatal(err)
		}
	}
	drivertest.Wait(ctx, t, d, done.Task)
	wait(t, "output", func() bool { b, _ := os.ReadFile(log); return string(b) == "x\n" })
	if err := d.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "journal")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(b), strings.TrimSpace(string(boot)), "another-boot")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := drivertest.Wait(ctx, t, d, l.Task)
	if o.Exit.Cause != "lost" || o.Exit.Reason != "the machine was restarted while it ran" {
		t.Errorf("exit %+v", o.Exit)
	}
	if o := drivertest.Wait(ctx, t, d, done.Task); o.Exit.Code != 7 {
		t.Errorf("exit %+v", o.Exit)
	}
	// It did not really end; nobody looks after it now.
	for _, pid := range marked(filepath.Join(dir, "tasks", "t.1")) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// marked lists the processes of the task of dir.
func marked(dir string) []int {
	var list []int
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range names {
		env, _ := os.ReadFile(p + "/environ")
		if strings.Contains(string(env), "BERTH_TASK_DIR="+dir+"\x00") {
			pid, _ := strconv.Atoi(filepath.Base(p))
			list = append(list, pid)
		}
	}
	return list
}

// TestRenew opens a driver of another build while a task runs: the host executes that build in its
// place.
func TestRenew(t *testing.T) {
	ctx := limited(t)
	d, dir := open(t)
	log := filepath.Join(t.TempDir(), "log")
	l := berth.Launch{Task: "t.1", Command: "echo x; sleep 0.3; exit 9", LogFile: log}
	if _, err := d.Start(ctx, l); err != nil {
		t.Fatal(err)
	}
	c := host.NewClient(dir)
	defer c.Close()
	before, err := c.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// The same program under another name and date.
	other := filepath.Join(t.TempDir(), "other")
	b, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, b, 0o755); err != nil {
		t.Fatal(err)
	}
	newer, err := local.Open(driver.Config{Name: "local", Dir: dir, Host: []string{other, "_host"}})
	if err != nil {
		t.Fatal(err)
	}
	defer newer.(*local.Driver).Close()
	if o := drivertest.Wait(ctx, t, newer, l.Task); o.Exit.Code != 9 {
		t.Errorf("exit %+v", o.Exit)
	}
	after, err := c.Info(ctx)
	for ; err == nil && after.PID == before.PID && ctx.Err() == nil; after, err = c.Info(ctx) { // the task may end first
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil || after.Reaper != before.Reaper || after.PID == before.PID || after.Build != host.Build(other) {
		t.Errorf("before %+v, after %+v (%v)", before, after, err)
	}
}

// TestEscaped lets a command leave a daemon behind: it ends with its task, and other tasks' daemons
// do not.
func TestEscaped(t *testing.T) {
	ctx := limited(t)
	d, dir := open(t)
	logs := t.TempDir()
	daemon := "(setsid sh -c 'echo up; exec sleep 600' &); "
	long := berth.Launch{Task: "long.1", Command: daemon + "sleep 600", LogFile: filepath.Join(logs, "long")}
	short := berth.Launch{Task: "short.1", Command: daemon + "while ! grep -q up " + filepath.Join(logs, "short") + "; do :; done", LogFile: filepath.Join(logs, "short")}
	for _, l := range []berth.Launch{long, short} {
		if _, err := d.Start(ctx, l); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, "the daemon", func() bool { b, _ := os.ReadFile(long.LogFile); return string(b) == "up\n" })
	drivertest.Wait(ctx, t, d, short.Task)
	wait(t, "the end of the daemon", func() bool { return len(marked(filepath.Join(dir, "tasks", "short.1"))) == 0 })
	if n := len(marked(filepath.Join(dir, "tasks", "long.1"))); n < 2 {
		t.Errorf("%d processes of the other task are left", n)
	}
}

// TestDirectories checks that a task finds its directory empty whatever the one before left there.
func TestDirectories(t *testing.T) {
	ctx := limited(t)
	d, dir := open(t)
	logs := t.TempDir()
	for i, command := range []string{"/bin/true", "touch a outputs/b ../c", "mkdir outputs/d", "chmod 500 outputs", "/bin/true", "rmdir outputs", "/bin/true"} {
		id := berth.TaskID(fmt.Sprintf("t%d.1", i))
		look := berth.Launch{Task: id + "l", Command: "ls -A .. . outputs; stat -c %a outputs", LogFile: filepath.Join(logs, string(id))}
		for _, l := range []berth.Launch{{Task: id, Command: command, LogFile: filepath.Join(logs, "x")}, look} {
			h, err := d.Start(ctx, l)
			if err != nil {
				t.Fatal(err)
			}
			if o := drivertest.Wait(ctx, t, d, l.Task); !o.Exit.OK() {
				t.Errorf("%s: %+v", l.Command, o.Exit)
			}
			if err := d.Remove(ctx, h); err != nil {
				t.Fatal(err)
			}
		}
		if got, _ := os.ReadFile(look.LogFile); string(got) != ".:\noutputs\n\n..:\nwd\n\noutputs:\n700\n" {
			t.Errorf("after %q: %q", command, got)
		}
	}
	wait(t, "the directories to go", func() bool {
		left, _ := filepath.Glob(filepath.Join(dir, "tasks", "*"))
		trash, _ := filepath.Glob(filepath.Join(dir, "trash", "*"))
		return len(left)+len(trash) == 0
	})
}

// TestDeepDirectory has a directory too deep for a socket's path.
func TestDeepDirectory(t *testing.T) {
	ctx := limited(t)
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep", 30))
	d := reopen(t, dir)
	t.Cleanup(func() {
		if err := host.Shutdown(context.Background(), dir); err != nil {
			t.Error(err)
		}
	})
	l := berth.Launch{Task: "t.1", Command: "/bin/true", LogFile: filepath.Join(t.TempDir(), "log")}
	if _, err := d.Start(ctx, l); err != nil {
		t.Fatal(err)
	}
	if o := drivertest.Wait(ctx, t, d, l.Task); !o.Exit.OK() {
		t.Errorf("%+v", o.Exit)
	}
}

// TestCleanProcess looks at what a task inherits from its host besides variables: nothing.
func TestCleanProcess(t *testing.T) {
	ctx := limited(t)
	d, dir := open(t)
	log := filepath.Join(t.TempDir(), "log")
	run := func(id berth.TaskID) {
		t.Helper()
		l := berth.Launch{Task: id, Command: "grep -E 'SigIgn|SigBlk' /proc/self/status; ls /proc/self/fd; ps -o sid= -p $$ | grep -qw $$ && echo leader", LogFile: log}
		wait(t, "a host that takes it", func() bool { // the one before may still answer, and is ending
			_, err := d.Start(ctx, l)
			if err != nil && berth.CodeOf(err) != berth.Unavailable {
				t.Fatal(err)
			}
			return err == nil
		})
		drivertest.Wait(ctx, t, retrying{d}, id)
		got, _ := os.ReadFile(log)
		want := "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n0\n1\n2\n3\nleader\n" // 3 is the directory that ls reads
		if string(got) != want {
			t.Errorf("%q, want %q", got, want)
		}
		os.Remove(log)
	}
	run("a.1")
	kill(ctx, t, dir, reaper) // the worker takes its place
	wait(t, "another host", func() bool {
		c := host.NewClient(dir)
		defer c.Close()
		_, err := c.Info(ctx)
		return err == nil
	})
	run("b.1")
	kill(ctx, t, dir, worker)
	run("c.1")
}

func TestRefused(t *testing.T) {
	d, _ := open(t)
	for _, id := range []berth.TaskID{"", "..", "a/b", ".x", "a\nb"} {
		if _, err := d.Start(limited(t), berth.Launch{Task: id, Command: "true"}); berth.CodeOf(err) != berth.Invalid {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// TestDirectoryDeleted deletes the directory of a host while a command runs: the command ends, the
// host ends, and the next task has another host.
func TestDirectoryDeleted(t *testing.T) {
	ctx := limited(t)
	d, dir := open(t)
	out := t.TempDir()
	first := waiting("first.1", out)
	if _, err := d.Start(ctx, first); err != nil {
		t.Fatal(err)
	}
	wait(t, "output", func() bool { b, _ := os.ReadFile(first.LogFile); return string(b) == "up\n" })
	was := processesOf(ctx, t, dir)
	wait(t, "the directory to be deleted", func() bool { return os.RemoveAll(dir) == nil })
	next := berth.Launch{Task: "next.1", Command: "exit 5", LogFile: filepath.Join(out, "next.log")}
	wait(t, "the next task to be taken", func() bool {
		_, err := d.Start(ctx, next)
		if err != nil && berth.CodeOf(err) != berth.Unavailable {
			t.Fatal(err)
		}
		return err == nil
	})
	if o := drivertest.Wait(ctx, t, retrying{d}, next.Task); o.Exit == nil || o.Exit.Code != 5 {
		t.Errorf("exit %+v, want code 5", o.Exit)
	}
	wait(t, "the old host and its command to end", func() bool {
		return gone(was.PID) && gone(was.Reaper) && len(marked(filepath.Join(dir, "tasks", "first.1"))) == 0
	})
}

// TestTrackedTasksShareDirectories: a task that is told where to log metrics leaves its directory
// as it was made, so that the next one has it; both read the server's certificate, also after
// something was put in its place.
func TestTrackedTasksShareDirectories(t *testing.T) {
	ctx := limited(t)
	d, dir := open(t)
	out := t.TempDir()
	for i, id := range []berth.TaskID{"a.1", "b.1", "c.1"} {
		l := berth.Launch{
			Task: id, LogFile: filepath.Join(out, string(id)), Home: berth.Home{CA: "the certificate"},
			Tracking: &berth.LaunchTracking{URI: "https://x"}, Command: `cat "$MLFLOW_TRACKING_SERVER_CERT_PATH"`,
		}
		handle, err := d.Start(ctx, l)
		if err != nil {
			t.Fatal(err)
		}
		drivertest.Wait(ctx, t, d, id)
		if b, _ := os.ReadFile(l.LogFile); string(b) != "the certificate" {
			t.Errorf("%s reads %q", id, b)
		}
		if err := d.Remove(ctx, handle); err != nil {
			t.Fatal(err)
		}
		wait(t, "the directory to be kept for the next", func() bool {
			spare, _ := filepath.Glob(filepath.Join(dir, "spare", "*"))
			return len(spare) == 1
		})
		files, _ := filepath.Glob(filepath.Join(dir, "ca-*.pem"))
		if len(files) != 1 {
			t.Fatalf("certificates are %v", files)
		}
		if i == 1 { // nobody reads from it: that would never end
			if err := errors.Join(os.Remove(files[0]), syscall.Mkfifo(files[0], 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestPastTermStartsNothing: a server that led before, and does not know that it leads no more,
// cannot start a task again that the next one has removed; not on the next host either.
func TestPastTermStartsNothing(t *testing.T) {
	ctx := limited(t)
	d, dir := open(t)
	mark := filepath.Join(t.TempDir(), "ran")
	drivertest.PastTerm(ctx, t, d, berth.Launch{Task: "t.1", Command: "echo ran >> " + mark}, func() { kill(ctx, t, dir, both) })
	if b, err := os.ReadFile(mark); err != nil || string(b) != "ran\n" {
		t.Errorf("%q, %v", b, err)
	}
	after := berth.WithTerm(ctx, 7)
	if _, err := d.Start(after, berth.Launch{Task: "t.2", Command: "true"}); err != nil {
		t.Error(err)
	}
	drivertest.Wait(after, t, d, "t.2")
}
