//go:build linux

package agent_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/berthml/berth/internal/devbox"
	"github.com/berthml/berth/internal/devbox/agent"
)

// start runs the agent of a new instance whose environment is there already, so that a test needs
// no packages. Tests whose creation script fails never come to JupyterLab.
func start(t *testing.T, c devbox.Config) (string, *agent.Client) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ag") // short, for its socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	client, _ := startIn(t, dir, c)
	return dir, client
}

// startIn is start in a directory that there is; stop ends the agent.
func startIn(t *testing.T, dir string, c devbox.Config) (_ *agent.Client, stop func()) {
	t.Helper()
	for _, d := range []string{"home", "log", "key", "env"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	marker := filepath.Join(dir, "env", ".berth-env.json")
	if _, err := os.Stat(marker); err != nil {
		if err := os.WriteFile(marker, []byte(`{"synced":true}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.Name, c.User, c.Node, c.Run, c.Prefix = "box", "ann", "ci-box", 1, "/p/box"
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx, dir, c) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the agent ended: %v", err)
		}
	})
	t.Cleanup(stop)
	return agent.NewClient(dir), stop
}

func script(text string, limit time.Duration) *devbox.Script {
	return &devbox.Script{Data: []byte(text), Timeout: limit}
}

// failed waits until the agent says that it failed.
func failed(t *testing.T, c *agent.Client) devbox.Status {
	t.Helper()
	var s devbox.Status
	for {
		next, err := c.Status(t.Context(), s.Seq)
		if t.Context().Err() != nil {
			t.Fatalf("last: %+v %v", s, err)
		}
		if err == nil {
			s = next
		}
		if s.Phase == devbox.PhaseFailed {
			return s
		}
	}
}

func TestScriptFails(t *testing.T) {
	_, c := start(t, devbox.Config{Vars: map[string]string{"WHO": "vars"}, Creation: &devbox.Script{
		Data: []byte("echo \"$1 $2 in $PWD for $WHO\"\r\necho oh no >&2\r\nexit 3\r\n"), Args: "one 'two three'", Timeout: time.Minute,
	}})
	s := failed(t, c)
	if !strings.Contains(s.Failed, "the creation script failed: exit status 3") || s.SetUp {
		t.Errorf("%+v", s)
	}
	if !strings.Contains(s.Log, "one two three in") || !strings.Contains(s.Log, "for vars") || !strings.HasSuffix(s.Log, "oh no") {
		t.Errorf("its log: %q", s.Log)
	}
}

func TestScriptHangs(t *testing.T) {
	dir, c := start(t, devbox.Config{Creation: script("echo begun; trap '' TERM; sleep 1000 & echo $! > pid; sleep 1000", 3*time.Second)}) // long enough for a shell to begin on any machine
	s := failed(t, c)
	if !strings.Contains(s.Failed, "did not finish within 3s") || s.Log != "begun" {
		t.Errorf("%+v", s)
	}
	b, err := os.ReadFile(filepath.Join(dir, "home", "pid"))
	if err != nil {
		t.Fatal(err)
	}
	gone(t, strings.TrimSpace(string(b)))
}

// gone waits until a process is no more.
func gone(t *testing.T, pid string) {
	t.Helper()
	for alive(pid) {
		if t.Context().Err() != nil {
			t.Fatalf("process %s stays", pid)
		}
		time.Sleep(time.Millisecond)
	}
}

func alive(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !bytes.Contains(b, []byte(") Z "))
}

// dial is an ssh connection to an instance whose setup failed.
func dial(t *testing.T, dir, key string) *ssh.Client {
	t.Helper()
	conn, err := agent.Dial(t.Context(), dir, "ssh")
	if err != nil {
		t.Fatal(err)
	}
	known, _, _, _, err := ssh.ParseAuthorizedKey([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	c, channels, requests, err := ssh.NewClientConn(conn, "box", &ssh.ClientConfig{User: "x", HostKeyCallback: ssh.FixedHostKey(known)})
	if err != nil {
		t.Fatal(err)
	}
	client := ssh.NewClient(c, channels, requests)
	t.Cleanup(func() { client.Close() })
	return client
}

func run(t *testing.T, c *ssh.Client, command string, in []byte) (out string, code int) {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Stdin = bytes.NewReader(in)
	var b, errs bytes.Buffer
	s.Stdout, s.Stderr = &b, &errs
	err = s.Run(command)
	var exit *ssh.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitStatus()
	} else if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return b.String() + errs.String(), code
}

func TestSSH(t *testing.T) {
	dir, c := start(t, devbox.Config{Creation: script("exit 1", time.Minute)})
	s := failed(t, c)
	client := dial(t, dir, s.HostKey)
	if out, code := run(t, client, "pwd; echo $HOME; exit 5", nil); code != 5 || out != dir+"/home\n"+dir+"/home\n" {
		t.Errorf("%q %d", out, code)
	}
	every := make([]byte, 1<<16)
	for i := range every {
		every[i] = byte(i)
	}
	if out, code := run(t, client, "cat", every); code != 0 || out != string(every) {
		t.Errorf("bytes changed on their way: %d of %d, exit code %d", len(out), len(every), code)
	}
	if out, code := run(t, client, "kill -9 $$", nil); code != 137 {
		t.Errorf("%q %d", out, code)
	}
	x, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := x.RequestPty("xterm", 33, 77, nil); err != nil {
		t.Fatal(err)
	}
	if out, err := x.CombinedOutput("stty size; echo $TERM; test -t 0 && echo terminal"); err != nil || string(out) != "33 77\r\nxterm\r\nterminal\r\n" {
		t.Errorf("on a terminal: %q %v", out, err)
	}
	signals, err := c.Signals(t.Context())
	if err != nil || len(signals) != 1 || signals[0].Name != "ssh" || !signals[0].Busy {
		t.Errorf("with somebody connected: %+v %v", signals, err)
	}
	client.Close()
	for {
		signals, err := c.Signals(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !signals[0].Busy && !signals[0].Last.IsZero() {
			break
		}
	}
	// The key is the same after a restart.
	if b, err := os.ReadFile(filepath.Join(dir, "key", "host_ed25519")); err != nil || !bytes.Contains(b, []byte("PRIVATE KEY")) {
		t.Errorf("%v", err)
	}
}

// TestLogin: a login shell, whose /etc/profile may set another PATH, finds the instance's programs
// first, and reads the user's ~/.bashrc.
func TestLogin(t *testing.T) {
	dir, c := start(t, devbox.Config{Creation: script("echo 'hers=yes' > ~/.bashrc; exit 1", time.Minute)})
	client := dial(t, dir, failed(t, c).HostKey)
	x, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	x.Stdin = strings.NewReader("command -v berth; echo $PATH $hers\n")
	var b bytes.Buffer
	x.Stdout = &b
	if err := x.Shell(); err != nil {
		t.Fatal(err)
	}
	if err := x.Wait(); err != nil {
		t.Fatalf("%v: %s", err, &b)
	}
	out := b.String()
	program, path, _ := strings.Cut(out, "\n")
	if !strings.HasSuffix(program, "/bin/berth") || !strings.HasPrefix(path, dir+"/home/.local/bin:"+dir+"/env/bin:") {
		t.Errorf("%q", out)
	}
	if _, err := exec.LookPath("bash"); err == nil && !strings.HasSuffix(out, " yes\n") {
		t.Errorf("%q", out)
	}
}

// TestHungUp: what an interactive command runs ends when its client is gone.
func TestHungUp(t *testing.T) {
	dir, c := start(t, devbox.Config{Creation: script("exit 1", time.Minute)})
	client := dial(t, dir, failed(t, c).HostKey)
	x, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, err := x.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Start("echo $$; exec sleep 1000"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 20)
	n, err := out.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(string(b[:n]))
	if !alive(pid) {
		t.Fatalf("process %s is not there", pid)
	}
	client.Close()
	gone(t, pid)
}

func TestForward(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	dir, c := start(t, devbox.Config{Creation: script("exit 1", time.Minute)})
	client := dial(t, dir, failed(t, c).HostKey)
	conn, err := client.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "ahoy"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4)
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != "ahoy" {
		t.Errorf("%q %v", b, err)
	}
	if _, err := client.Dial("tcp", "192.0.2.1:80"); err == nil || !strings.Contains(err.Error(), "only ports of the instance") {
		t.Errorf("to somewhere else: %v", err)
	}
}

// TestFiles copies files with OpenSSH's own client.
func TestFiles(t *testing.T) {
	if _, err := exec.LookPath("sftp"); err != nil {
		t.Skip("there is no sftp here")
	}
	dir, c := start(t, devbox.Config{Creation: script("exit 1", time.Minute)})
	failed(t, c)
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	go func() {
		for {
			near, err := proxy.Accept()
			if err != nil {
				return
			}
			far, err := agent.Dial(context.Background(), dir, "ssh")
			if err != nil {
				near.Close()
				return
			}
			go func() { _, _ = io.Copy(far, near); far.Close() }()
			go func() { _, _ = io.Copy(near, far); near.Close() }()
		}
	}()
	work := t.TempDir()
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // a MiB
	if err := os.WriteFile(filepath.Join(work, "in"), data, 0o640); err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(proxy.Addr().(*net.TCPAddr).Port)
	cmd := exec.Command("sftp", "-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-P", port, "-b", "-", "x@127.0.0.1")
	cmd.Dir = work
	cmd.Stdin = strings.NewReader("mkdir sub\nput -p in sub/a\nrename sub/a sub/b\nln -s b sub/link\nls -l sub\nget sub/link out\n-get sub/none\nchmod 600 sub/b\nrm sub/link\nls sub\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got, err := os.ReadFile(filepath.Join(work, "out")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("what came back differs: %d bytes, %v\n%s", len(got), err, out)
	}
	if info, err := os.Stat(filepath.Join(dir, "home", "sub", "b")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if !strings.Contains(string(out), "not found") {
		t.Errorf("a file that is not there:\n%s", out)
	}
	if _, err := os.Lstat(filepath.Join(dir, "home", "sub", "link")); !os.IsNotExist(err) {
		t.Errorf("the link is left: %v", err)
	}
}

func TestStop(t *testing.T) {
	dir, c := start(t, devbox.Config{Creation: script("setsid sleep 1000 & echo $! > pid; exit 1", time.Minute)})
	failed(t, c)
	b, err := os.ReadFile(filepath.Join(dir, "home", "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(string(b))
	if !alive(pid) {
		t.Fatal("what the script left behind is gone already")
	}
	if n, err := c.Disk(t.Context()); err != nil || n <= 0 {
		t.Errorf("disk: %d %v", n, err)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone(t, pid)
}

func TestUnknownApp(t *testing.T) {
	dir, c := start(t, devbox.Config{Creation: script("exit 1", time.Minute)})
	failed(t, c)
	if _, err := agent.Dial(t.Context(), dir, "nothing"); err == nil || !strings.Contains(err.Error(), "no application nothing") {
		t.Errorf("%v", err)
	}
}

// TestFullDisk: an instance whose disk is full comes up all the same, so that its owner can free
// it.
func TestFullDisk(t *testing.T) {
	dir, err := os.MkdirTemp("", "ag")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(dir)
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("no disk can be made here: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	c, stop := startIn(t, dir, devbox.Config{Creation: script("exit 1", time.Minute)})
	key := failed(t, c).HostKey
	stop()
	if err := os.WriteFile(filepath.Join(dir, "home", "large"), make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	c, stop = startIn(t, dir, devbox.Config{Creation: script("echo lost; exit 1", time.Minute)})
	s := failed(t, c)
	if !strings.Contains(s.Failed, "exit status 1") || s.HostKey != key {
		t.Errorf("%+v", s)
	}
	if len(s.Warnings) == 0 || !strings.Contains(s.Warnings[0], "the disk is full") {
		t.Errorf("no warning: %q", s.Warnings)
	}
	if out, code := run(t, dial(t, dir, s.HostKey), "rm large && df . >/dev/null && echo free", nil); code != 0 || out != "free\n" {
		t.Errorf("%q %d", out, code)
	}
	stop()
}
