package ssh

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// checkAgentKey refuses what does not name a public key.
func checkAgentKey(name string) error {
	if name == "" || strings.HasPrefix(name, "SHA256:") {
		return nil
	}
	if _, _, _, _, err := ssh.ParseAuthorizedKey([]byte(name)); err != nil {
		return berth.Errorf(berth.Invalid, "properties.properties.agentKey must be a public key, as ssh-add -L prints it, or its fingerprint SHA256:…")
	}
	return nil
}

// CheckAgent refuses a compute that names a key of the server's SSH agent where the operator does
// not allow that.
func CheckAgent(c driver.Config) error {
	if len(c.Properties) == 0 || c.SSHAgent != "" {
		return nil
	}
	if m, err := readMachine(c.Properties); err == nil && m.AgentKey != "" {
		return errNoAgent
	}
	return nil // errors are those of Check
}

var errNoAgent error = berth.Errorf(berth.Denied, "this server uses no SSH agent, so it cannot log in with a key that only an agent has. Use a key file without a passphrase (--ssh-private-key-file), "+
	"attach the machine from there (`berth compute attach --this-machine`), or, if the agent is on the server's machine, have its operator set `ssh_agent: PATH` in berth.yaml to the agent's socket")

// fromAgent is a key of the server's SSH agent, until end is called. The agent is asked to sign
// with it; the key itself stays there.
func fromAgent(ctx context.Context, socket, name string, most time.Duration) (key ssh.Signer, end func() error, err error) {
	switch socket {
	case "":
		return nil, nil, errNoAgent
	case "true":
		return nil, nil, berth.Errorf(berth.Unavailable, "SSH_AUTH_SOCK was not set when the server started, so it has no SSH agent; set `ssh_agent: PATH` in berth.yaml to the agent's socket and restart it")
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err // without the path
		}
		return nil, nil, berth.Errorf(berth.Unavailable, "the server's SSH agent does not answer: %w", err)
	}
	_ = conn.SetDeadline(time.Now().Add(2 * most)) // it may ask somebody to confirm
	all, err := agent.NewClient(conn).Signers()
	if err != nil {
		conn.Close()
		return nil, nil, berth.Errorf(berth.Unavailable, "the server's SSH agent: %w", err)
	}
	for _, s := range all {
		if Names(name, s.PublicKey()) {
			return s, conn.Close, nil
		}
	}
	conn.Close()
	return nil, nil, berth.Errorf(berth.Unavailable, "the server's SSH agent does not have the key %s; add it there with ssh-add", fingerprint(name))
}

// Names reports whether a public key, or a fingerprint, is that of a key.
func Names(name string, key ssh.PublicKey) bool {
	if name == ssh.FingerprintSHA256(key) {
		return true
	}
	named, _, _, _, err := ssh.ParseAuthorizedKey([]byte(name))
	return err == nil && bytes.Equal(named.Marshal(), key.Marshal())
}

// fingerprint is that of a public key, which may be named by it already.
func fingerprint(name string) string {
	if key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(name)); err == nil {
		return ssh.FingerprintSHA256(key)
	}
	return name
}
