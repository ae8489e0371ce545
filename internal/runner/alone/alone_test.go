//go:build unix

package alone_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/alone"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "_task" {
		os.Exit(alone.Main(context.Background(), os.Args[2:]))
	}
	os.Exit(m.Run())
}

// server is what a runner reports to.
type server struct {
	*httptest.Server
	mu   sync.Mutex
	ends []berth.Report
	log  strings.Builder
	said chan struct{} // closed when there is something in the log
	once sync.Once
}

func start(t *testing.T) *server {
	s := &server{said: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		if strings.HasSuffix(r.URL.Path, "/log") {
			if r.URL.Query().Get("offset") == strconv.Itoa(s.log.Len()) { // else it was sent before
				s.log.Write(b)
			}
			s.once.Do(func() { close(s.said) })
			fmt.Fprintf(w, `{"size":%d}`, s.log.Len())
			return
		}
		var all []berth.Report
		if err := json.Unmarshal(b, &all); err != nil {
			t.Errorf("%v in %s", err, b)
		}
		for _, r := range all {
			if r.State == berth.TaskDone {
				s.ends = append(s.ends, r)
			}
		}
		fmt.Fprint(w, "{}")
	}))
	t.Cleanup(s.Close)
	return s
}

// task makes the process of a task.
func (s *server) task(t *testing.T, command string) (cmd *exec.Cmd, dir string) {
	t.Helper()
	tmp := t.TempDir()
	dir = filepath.Join(tmp, "task")
	b, err := json.Marshal(berth.Launch{Task: "a.1", Job: "a", Attempt: 1, Command: command, Home: berth.Home{URL: s.URL, Token: "x"}})
	if err == nil {
		err = errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, alone.LaunchFile), b, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(os.Args[0], "_task", "--dir", dir)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.Stderr = os.Stderr
	return cmd, dir
}

// end is how the process ended, and what ends and output the server was told.
func (s *server) end(t *testing.T, err error) (code int, ends []berth.Report, log string) {
	t.Helper()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return code, slices.Clone(s.ends), s.log.String()
}

// TestExit: the process ends as the command did, after the server was told, and leaves nothing.
func TestExit(t *testing.T) {
	s := start(t)
	cmd, dir := s.task(t, "echo hello; exit 3")
	if code, ends, log := s.end(t, cmd.Run()); code != 3 || len(ends) != 1 || ends[0].Exit.Code != 3 || log != "hello\n" {
		t.Errorf("exit code %d, ends %+v, log %q", code, ends, log)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its directory is left: %v", err)
	}
}

// TestSignals: a task that the server ends says so; one that the queueing system ends leaves that
// to the system.
func TestSignals(t *testing.T) {
	for signal, want := range map[syscall.Signal]int{syscall.SIGUSR1: 1, syscall.SIGUSR2: 1, syscall.SIGTERM: 0} {
		s := start(t)
		cmd, dir := s.task(t, "echo begun; sleep 600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-s.said
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		code, ends, _ := s.end(t, cmd.Wait())
		if code == 0 || len(ends) != want || want > 0 && ends[0].Exit.Cause != "canceled" {
			t.Errorf("%v: exit code %d, ends %+v", signal, code, ends)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v: its directory is left: %v", signal, err)
		}
	}
}

// TestBadLaunch: a runner that cannot begin says so by its exit code.
func TestBadLaunch(t *testing.T) {
	s := start(t)
	cmd, dir := s.task(t, "true")
	if err := os.WriteFile(filepath.Join(dir, alone.LaunchFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, ends, _ := s.end(t, cmd.Run()); code != berth.ExitRunner || len(ends) != 0 {
		t.Errorf("exit code %d, ends %+v", code, ends)
	}
}

// TestScript: a process finds its launch among others in the script that it was started by, makes
// its own directory where it has none, ends what its command left behind, and leaves nothing.
func TestScript(t *testing.T) {
	s, tmp := start(t), t.TempDir()
	var all []berth.Launch
	for i := range 3 {
		all = append(all, berth.Launch{
			Task: berth.TaskID(fmt.Sprintf("a%d.1", i)), Job: "a", Attempt: 1, Command: fmt.Sprintf("setsid sleep 600 & echo $!; exit %d", i+4),
			Home: berth.Home{URL: s.URL, Token: "x"},
		})
	}
	text, err := berth.AppendLaunches([]byte("#!/bin/sh\nexit\n"), all)
	script := filepath.Join(t.TempDir(), "script")
	if err == nil {
		err = os.WriteFile(script, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "_task", "--script", script, "--dir", "", "--index", "1")
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.Stderr = os.Stderr
	code, ends, log := s.end(t, cmd.Run())
	if code != 5 || len(ends) != 1 || ends[0].Task != "a1.1" {
		t.Errorf("exit code %d, ends %+v", code, ends)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(log))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.Contains(string(b), "sleep") {
		t.Errorf("process %d is left", pid)
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "berth-task.*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	cmd = exec.Command(os.Args[0], "_task", "--script", script)
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Join(tmp, "none"))
	if code, _, _ := s.end(t, cmd.Run()); code != berth.ExitNoRoom {
		t.Errorf("without room: exit code %d", code)
	}
}
