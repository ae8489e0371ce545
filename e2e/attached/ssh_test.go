//go:build linux

package attached_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// openSSH is OpenSSH's own server, for an account whose home is a directory of the test's.
type openSSH struct {
	t          *testing.T
	dir, home  string
	port, user string
	key        string // path
	cmd        *exec.Cmd
	// Of one in a network of its own:
	space, address string
}

// startOpenSSH starts a server, or skips the test where there is none.
func startOpenSSH(t *testing.T) *openSSH { return startOpenSSHAt(t, "", "127.0.0.1") }

// startOpenSSHAt starts a server at an address of a network namespace, or of this machine.
func startOpenSSHAt(t *testing.T, space, address string) *openSSH {
	t.Helper()
	if _, err := exec.LookPath("sshd"); err != nil {
		if _, err := os.Stat("/usr/sbin/sshd"); err != nil {
			if strings.Contains(os.Getenv("BERTH_REQUIRE_ENGINES"), "sshd") {
				t.Fatal("sshd is required (BERTH_REQUIRE_ENGINES)")
			}
			t.Skip("there is no sshd")
		}
	}
	dir, err := os.MkdirTemp("", "bs") // short: sockets lie below
	if err != nil {
		t.Fatal(err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	o := &openSSH{t: t, dir: dir, home: filepath.Join(dir, "home"), user: me.Username, key: filepath.Join(dir, "id"), space: space, address: address}
	t.Cleanup(o.clean)
	if err := os.Mkdir(o.home, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		_ = os.MkdirAll("/run/sshd", 0o755)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, o.port, _ = net.SplitHostPort(l.Addr().String())
	l.Close()
	for _, name := range []string{"id", "host"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v: %s", err, out)
		}
	}
	write(t, filepath.Join(dir, "run.sh"), "export HOME="+o.home+"\ncd\nexec sh -c \"$SSH_ORIGINAL_COMMAND\"\n")
	write(t, filepath.Join(dir, "sshd_config"), fmt.Sprintf("Port %s\nListenAddress %s\nHostKey %s/host\nPidFile none\nAuthorizedKeysFile %s/id.pub\n"+
		"StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nAllowTcpForwarding no\nForceCommand sh %s/run.sh\n", o.port, address, dir, dir, dir))
	o.start()
	return o
}

func (o *openSSH) start() {
	o.t.Helper()
	path, err := exec.LookPath("sshd")
	if err != nil {
		path = "/usr/sbin/sshd"
	}
	log, err := os.Create(filepath.Join(o.dir, "sshd.log"))
	if err != nil {
		o.t.Fatal(err)
	}
	defer log.Close()
	words := []string{path, "-D", "-e", "-f", filepath.Join(o.dir, "sshd_config")}
	if o.space != "" {
		words = append([]string{"ip", "netns", "exec", o.space}, words...)
	}
	o.cmd = exec.Command(words[0], words[1:]...)
	o.cmd.Stderr = log
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := o.cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
}

// kill kills the server and every connection.
func (o *openSSH) kill() {
	if o.cmd == nil {
		return
	}
	o.cmd.Process.Kill()
	o.cmd.Wait()
	o.cmd = nil
	for _, pid := range o.processes("_ssh\x00bridge") {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// processes are those of the account whose command line has some words.
func (o *openSSH) processes(words string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range all {
		b, err := os.ReadFile(f)
		var pid int
		if err == nil && bytes.Contains(b, []byte(o.home)) && bytes.Contains(b, []byte(words)) {
			fmt.Sscanf(f, "/proc/%d/", &pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

func (o *openSSH) clean() {
	o.kill()
	for _, pid := range o.processes("") {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	if o.t.Failed() {
		b, _ := os.ReadFile(filepath.Join(o.dir, "sshd.log"))
		logs, _ := filepath.Glob(filepath.Join(o.home, ".berth/remote/*/agent.log"))
		for _, l := range logs {
			text, _ := os.ReadFile(l)
			b = append(b, text...)
		}
		o.t.Logf("%s", b)
	}
	os.RemoveAll(o.dir)
}

// TestSSHStory runs the same job on a machine that OpenSSH leads to. While it runs the connection
// is cut, the agent is killed, and the server is killed; and a machine that shows another key is
// refused.
func TestSSHStory(t *testing.T) {
	s := world.Start(t)
	o := startOpenSSH(t)
	run(t, s, "compute", "attach", "-n", "laptop", "--ssh", o.user+"@127.0.0.1:"+o.port, "--ssh-private-key-file", o.key)
	gate := filepath.Join(t.TempDir(), "gate")
	run(t, s, "job", "create", "-f", job(t, gate, 0), "-n", "first")
	until(t, s, "some words", "logs", "first")
	if out := run(t, s, "explain", "laptop"); !strings.Contains(out, "has been connected since") {
		t.Errorf("explain: %s", out)
	}

	o.kill()
	until(t, s, "has not been connected since", "explain", "laptop")
	for _, pid := range o.processes("_ssh\x00agent") {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	run(t, s, "job", "create", "-f", job(t, gate, 3), "-n", "second") // while the machine is away
	until(t, s, "has not been connected since", "explain", "second")
	o.start()
	until(t, s, "Running", "job", "show", "-n", "second", "-o", "json")

	syscall.Kill(serverPID(t, s), syscall.SIGKILL)
	write(t, gate, "") // they end while there is no server
	run(t, s, "up")
	until(t, s, "Completed", "job", "show", "-n", "first", "-o", "json")
	until(t, s, "Failed", "job", "show", "-n", "second", "-o", "json")
	for _, name := range []string{"first", "second"} {
		if out, _ := try(s, "logs", name); out != "begin\nsome words\nend\n" {
			t.Errorf("log of %s: %q", name, out)
		}
	}
	to := t.TempDir()
	run(t, s, "job", "download", "-n", "first", "--all", "-p", to)
	for name, want := range map[string]string{"copy.txt": "some words\n", "kept.txt": "kept\n"} {
		if got := find(t, to, name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}

	until(t, s, "has been connected since", "explain", "laptop")
	o.kill()
	until(t, s, "has not been connected since", "explain", "laptop")
	os.Remove(filepath.Join(o.dir, "host"))
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(o.dir, "host")).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	o.start()
	until(t, s, "HOST KEY", "explain", "laptop")
	run(t, s, "compute", "detach", "-n", "laptop", "--yes")
}
