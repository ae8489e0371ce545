package cli_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// screen is a terminal with a command on it.
type screen struct {
	t        *testing.T
	terminal *os.File
	cmd      *exec.Cmd
	shown    bytes.Buffer // since the last text that was waited for
	all      bytes.Buffer
}

func onScreen(t *testing.T, env []string, args ...string) *screen {
	t.Helper()
	terminal, other, err := openPTY()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	path, err := exec.LookPath(args[0])
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = other, other, other, append(env, "TERM=xterm")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	other.Close()
	return &screen{t: t, terminal: terminal, cmd: cmd}
}

// until reads what the command shows up to a text.
func (s *screen) until(text string) {
	s.t.Helper()
	buf := make([]byte, 4096)
	for !strings.Contains(s.shown.String(), text) {
		n, err := s.terminal.Read(buf)
		if err != nil {
			s.t.Fatalf("%q was not shown: %v\n%q", text, err, s.shown.String())
		}
		s.shown.Write(buf[:n])
		s.all.Write(buf[:n])
	}
	_, rest, _ := strings.Cut(s.shown.String(), text)
	s.shown.Reset()
	s.shown.WriteString(rest)
}

func (s *screen) press(keys string) {
	s.t.Helper()
	if _, err := s.terminal.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// end waits for the end of the command and returns its exit code.
func (s *screen) end() int {
	go func() { // so that it is not stopped by a full terminal
		buf := make([]byte, 4096)
		for {
			if _, err := s.terminal.Read(buf); err != nil {
				return
			}
		}
	}()
	var exit *exec.ExitError
	if err := s.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return s.cmd.ProcessState.ExitCode()
}

// TestInteractiveTerminal: `berth run -i` gives a job the terminal: its size, also when that
// changes, what is typed, and Ctrl-C; the exit code is the command's. When the terminal is gone, so
// is the job.
func TestInteractiveTerminal(t *testing.T) {
	home, err := os.MkdirTemp("", "bi")
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "BERTH_HOME="+home, "HOME="+t.TempDir(), "BERTH_URL=", "NO_COLOR=1")
	berth := func(args ...string) string {
		cmd := exec.Command("berth", args...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
		return string(out)
	}
	t.Cleanup(func() {
		berth("down")
		os.RemoveAll(home)
	})
	berth("up")

	s := onScreen(t, env, "berth", "run", "-i", "--no-code", "--", "sh", "-c",
		`stty size; read x; echo "got:$x"; until stty size | grep -q "^50 100"; do sleep 0.05; done; trap "echo caught; exit 42" INT; echo ready; while :; do sleep 0.05; done`)
	s.until("40 120\r\n")
	s.press("abc\r")
	s.until("got:abc")
	if err := unix.IoctlSetWinsize(int(s.terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 100}); err != nil {
		t.Fatal(err)
	}
	s.until("ready")
	s.press("\x03")
	s.until("caught")
	if code := s.end(); code != 42 {
		t.Errorf("the exit code is %d", code)
	}

	s = onScreen(t, env, "berth", "run", "-i", "--no-code", "--name", "left", "--", "sh", "-c", "echo here; sleep 1000")
	s.until("here")
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.end()
	out := berth("logs", "-f", "left")
	if got := berth("job", "show", "-n", "left", "--query", "status", "-o", "tsv"); strings.TrimSpace(got) != "Canceled" {
		t.Errorf("the job is %s\n%s", got, out)
	}
	if got := berth("explain", "left"); !strings.Contains(got, "whoever typed its input has gone") {
		t.Errorf("%s", got)
	}
}

// TestLoginAsks: on a terminal, `berth login` asks for the token and does not show it.
func TestLoginAsks(t *testing.T) {
	home, err := os.MkdirTemp("", "bl")
	if err != nil {
		t.Fatal(err)
	}
	base := append(os.Environ(), "HOME="+t.TempDir(), "XDG_CONFIG_HOME=", "BERTH_URL=", "BERTH_TOKEN=", "BERTH_SERVER=", "NO_COLOR=1", "BERTH_HOME=")
	here := append(base[:len(base):len(base)], "BERTH_HOME="+home)
	berth := func(env []string, args ...string) string {
		cmd := exec.Command("berth", args...)
		cmd.Env = env
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	t.Cleanup(func() {
		berth(here, "down")
		os.RemoveAll(home)
	})
	berth(here, "up")
	token := berth(here, "user", "add", "ann")
	address := berth(here, "status", "-o", "tsv", "--query", "url")
	login := []string{"berth", "login", address, "--name", "team", "--ca", home + "/tls/ca.pem"}

	s := onScreen(t, base, login...)
	s.until("token for " + address + ": ")
	s.press("wrong\r")
	s.until("the server does not know this token")
	if code := s.end(); code == 0 {
		t.Error("a wrong token was accepted")
	}
	s = onScreen(t, base, login...)
	s.until("token for " + address + ": ")
	s.press(token + "\r")
	s.until("logged in to team")
	if strings.Contains(s.all.String(), token) {
		t.Error("the token is shown")
	}
	if code := s.end(); code != 0 {
		t.Errorf("the exit code is %d", code)
	}
	if got := berth(base, "status", "-o", "tsv", "--query", "user"); got != "ann" {
		t.Errorf("commands are sent as %q", got)
	}
}

// Ctrl-D at a question is no.
func TestConfirmCtrlD(t *testing.T) {
	home, err := os.MkdirTemp("", "bc")
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "BERTH_HOME="+home, "HOME="+t.TempDir(), "BERTH_URL=", "BERTH_SERVER=", "NO_COLOR=1")
	t.Cleanup(func() {
		down := exec.Command("berth", "down")
		down.Env = env
		down.Run()         // it may not run
		os.RemoveAll(home) // a temporary folder
	})
	run := exec.Command("berth", "run", "--no-code", "-n", "kept", "--", "true")
	run.Env = env
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s := onScreen(t, env, "berth", "rm", "kept")
	s.until("[y/N] ")
	s.press("\x04")
	s.until("nothing was done")
	if code := s.end(); code == 0 || strings.Contains(s.all.String(), "closed") {
		t.Errorf("exit code %d: %s", code, s.all.String())
	}
}
