//go:build unix

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSSHKey chooses among key files, with and without passphrases, and the keys of a real agent.
func TestSSHKey(t *testing.T) {
	for _, tool := range []string{"ssh-keygen", "ssh-agent", "ssh-add"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	dir, err := os.MkdirTemp("", "bk") // short: a socket lies below
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for name, passphrase := range map[string]string{"open": "", "other": "", "locked": "secret", "old": "secret"} {
		words := []string{"-q", "-t", "ecdsa", "-N", passphrase, "-f", filepath.Join(dir, name)}
		if name == "old" { // such a file does not tell its public key
			words = append(words, "-m", "PEM")
		}
		if out, err := exec.CommandContext(t.Context(), "ssh-keygen", words...).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v: %s", err, out)
		}
	}
	socket := filepath.Join(dir, "agent")
	daemon := exec.CommandContext(t.Context(), "ssh-agent", "-D", "-a", socket)
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait() // it was killed
	})
	add := func(name string) {
		t.Helper()
		path := filepath.Join(dir, name+"-plain") // ssh-add cannot be told a passphrase
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(path, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-p", "-P", "secret", "-N", "", "-f", path).Run() // fails for one that has none
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {                         // until the agent listens
			cmd := exec.CommandContext(t.Context(), "ssh-add", path)
			cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK="+socket)
			out, err := cmd.CombinedOutput()
			if err == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("ssh-add: %v: %s", err, out)
			}
		}
	}
	choose := func(want, value string, files ...string) {
		t.Helper()
		var paths []string
		for _, f := range files {
			paths = append(paths, filepath.Join(dir, f))
		}
		flag, got, err := sshKey(t.Context(), "me@host", map[string]string{"identityfile": strings.Join(paths, "\n"), "identityagent": socket})
		if err != nil {
			got = err.Error()
		}
		if flag != want || !strings.Contains(got, value) {
			t.Errorf("of %v: %q %q, want %q %q", files, flag, got, want, value)
		}
	}
	public := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, name+".pub"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(string(b))[:2], " ")
	}
	choose("ssh-private-key-file", "open", "missing", "open", "locked")
	choose("ssh-private-key-file", "open", "locked", "open")
	choose("", "has a passphrase", "locked")
	choose("", "no private key was found for me@host", "missing")
	add("other")
	choose("agent-key", public("other"), "missing")
	choose("", "--agent-key; yours has:\n  SHA256:", "locked") // the agent's key need not be the one
	add("locked")
	add("old")
	choose("agent-key", public("locked"), "missing", "locked")
	choose("agent-key", public("old"), "old")
	choose("", "--agent-key; yours has:\n  SHA256:", "missing")
	choose("ssh-private-key-file", "open", "open")
}
