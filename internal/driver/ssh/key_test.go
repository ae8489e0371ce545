//go:build unix

package ssh_test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/ssh"
	"github.com/berthml/berth/internal/driver/ssh/sshtest"
)

// serveAgent serves an SSH agent with some keys and returns its socket.
func serveAgent(t *testing.T, keys ...string) string {
	t.Helper()
	ring := agent.NewKeyring()
	for _, text := range keys {
		key, err := gossh.ParseRawPrivateKey([]byte(text))
		if err == nil {
			err = ring.Add(agent.AddedKey{PrivateKey: key})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = agent.ServeAgent(ring, c) // until the other side has enough
			}()
		}
	}()
	return socket
}

// TestAgentKey logs in with a key of the server's agent, also through a jump host, and only where
// the agent is allowed, answers and has the key.
func TestAgentKey(t *testing.T) {
	f := open(t)
	_, other := sshtest.NewKey(t)
	signer, err := gossh.ParsePrivateKey([]byte(f.key))
	if err != nil {
		t.Fatal(err)
	}
	name := gossh.FingerprintSHA256(signer.PublicKey())
	jump := sshtest.Start(t, t.TempDir(), f.sshd.Client())
	connect := func(socket string, more map[string]any) error {
		t.Helper()
		c := f.config(t.TempDir(), f.properties(more))
		c.SSHAgent = socket
		d, err := ssh.Open(c)
		if err != nil {
			return err
		}
		defer d.(*ssh.Driver).Close()
		_, err = d.(driver.Connector).Connect(t.Context(), driver.Access{Properties: c.Properties})
		return err
	}
	both := serveAgent(t, other, f.key)
	for _, more := range []map[string]any{
		{"agentKey": name},
		{"agentKey": string(gossh.MarshalAuthorizedKey(signer.PublicKey()))},
		{"agentKey": name, "jumpHosts": []string{"you@" + jump.Addr}},
	} {
		if err := connect(both, more); err != nil {
			t.Errorf("%v: %v", more, err)
		}
	}
	if jump.Count() != 1 {
		t.Errorf("%d connections through the jump host", jump.Count())
	}
	for what, c := range map[string]struct {
		socket string
		more   map[string]any
		code   berth.Code
		says   string
	}{
		"not allowed":         {"", map[string]any{"agentKey": name}, berth.Denied, "ssh_agent: PATH"},
		"no agent":            {"true", map[string]any{"agentKey": name}, berth.Unavailable, "SSH_AUTH_SOCK was not set"},
		"an agent that ended": {filepath.Join(t.TempDir(), "s"), map[string]any{"agentKey": name}, berth.Unavailable, "does not answer"},
		"another agent":       {serveAgent(t, other), map[string]any{"agentKey": name}, berth.Unavailable, "does not have the key " + name},
		"not named":           {both, nil, berth.Invalid, "neither"},
	} {
		if err := connect(c.socket, c.more); berth.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := ssh.Check(nil, f.properties(map[string]any{"agentKey": "id_ed25519"})); berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), "ssh-add -L") {
		t.Errorf("a key by its file: %v", err)
	}
	if err := ssh.Check(f.properties(nil), f.properties(map[string]any{"agentKey": name})); berth.CodeOf(err) != berth.Conflict {
		t.Errorf("a key given later: %v", err)
	}
}
