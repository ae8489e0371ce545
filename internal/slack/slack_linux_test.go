package slack

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv("SLACK_TEST") == "" {
		os.Exit(m.Run())
	}
	Increase()
	if _, there := os.LookupEnv(tried); there {
		panic("the mark of the second start was left in the environment")
	}
	print(own(), " ", child(false), " ", child(true), " ", strings.Join(os.Args[1:], ","))
	os.Exit(0)
}

// TestPatient is about a program that asks for it, what it starts, and what it starts as it would
// be anywhere else.
func TestPatient(t *testing.T) {
	if own() != "50000" {
		t.Skip("this machine's processes do not have the ordinary slack:", own())
	}
	cmd := exec.Command(os.Args[0], "a", "b c")
	cmd.Env = append(os.Environ(), "SLACK_TEST=1")
	out, err := cmd.CombinedOutput()
	if want := "1000000 1000000 50000 a,b c"; err != nil || string(out) != want {
		t.Errorf("slack of the program, of a child, of an ordinary child, arguments: %q, %v; want %q", out, err, want)
	}
}

// own is the slack of this process's first thread.
func own() string {
	b, err := os.ReadFile("/proc/self/timerslack_ns")
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b))
}

// child is the slack of a process started by this one.
func child(ordinary bool) string {
	r, w, err := os.Pipe()
	if err != nil {
		return err.Error()
	}
	defer r.Close()
	start := func() (int, error) {
		return syscall.ForkExec("/bin/cat", []string{"cat", "/proc/self/timerslack_ns"}, &syscall.ProcAttr{Files: []uintptr{0, w.Fd(), 2}})
	}
	var pid int
	if ordinary {
		pid, err = WithDefault(start)
	} else {
		pid, err = start()
	}
	w.Close()
	if err != nil {
		return err.Error()
	}
	b := make([]byte, 32)
	n, _ := r.Read(b)
	_, _ = syscall.Wait4(pid, nil, 0, nil)
	return strings.TrimSpace(string(b[:n]))
}
