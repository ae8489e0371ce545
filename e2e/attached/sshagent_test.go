//go:build linux

package attached_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// sshAgent starts OpenSSH's agent at a socket, with the key of a machine.
func sshAgent(t *testing.T, socket, key string) *exec.Cmd {
	t.Helper()
	if err := os.RemoveAll(socket); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("ssh-agent", "-D", "-a", socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(cmd) })
	untilSays(t, "", func() (string, error) {
		add := exec.Command("ssh-add", key)
		add.Env = append(os.Environ(), "SSH_AUTH_SOCK="+socket)
		out, err := add.CombinedOutput()
		return string(out), err
	})
	return cmd
}

func stop(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
}

// TestSSHAgentStory attaches a machine whose key only an agent has. A server without an agent says
// why it cannot be; one with an agent logs in by it, and again once the agent is back.
func TestSSHAgentStory(t *testing.T) {
	s := world.Start(t)
	o := startOpenSSH(t)
	socket := filepath.Join(o.dir, "agent")
	agent := sshAgent(t, socket, o.key)
	kept := o.key + "-kept" // for an agent that is started again
	if err := os.Rename(o.key, kept); err != nil {
		t.Fatal(err)
	}
	attach := func() (string, error) {
		cmd := s.Command("compute", "attach", "-n", "laptop", "--ssh", o.user+"@127.0.0.1:"+o.port)
		cmd.Env = append(cmd.Env, "HOME="+t.TempDir(), "SSH_AUTH_SOCK="+socket)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := attach(); err == nil || !strings.Contains(out, "--this-machine") || !strings.Contains(out, "ssh_agent: PATH") {
		t.Errorf("a server without an agent: %v\n%s", err, out)
	}
	if out := run(t, s, "compute", "list", "-o", "json"); strings.Contains(out, "laptop") {
		t.Errorf("it was attached: %s", out)
	}

	run(t, s, "down")
	write(t, filepath.Join(s.Home, "berth.yaml"), "ssh_agent: "+socket+"\n")
	run(t, s, "up")
	if out, err := attach(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out := run(t, s, "run", "--on", "laptop", "--", "echo in $HOME"); !strings.Contains(out, "in "+o.home) {
		t.Errorf("the job: %s", out)
	}

	// The agent is away while the connection is cut: the machine waits for it.
	stop(agent)
	o.kill()
	until(t, s, "has not been connected since", "explain", "laptop")
	o.start()
	until(t, s, "SSH agent does not answer", "explain", "laptop")
	sshAgent(t, socket, kept)
	until(t, s, "has been connected since", "explain", "laptop")
	run(t, s, "compute", "detach", "-n", "laptop", "--yes")
}
