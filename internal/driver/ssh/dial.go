package ssh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/dialout"
)

// way is an SSH connection to a machine, and those to the machines before it.
type way struct {
	*ssh.Client
	before   []*ssh.Client
	hostKeys map[string]string // that were shown, by address
}

// Close ends the connections. The first one goes first: it is the one of the network, and what
// waits in the others ends with it.
func (w *way) Close() error {
	var err error
	for _, c := range w.before {
		err = errors.Join(err, c.Close())
	}
	return errors.Join(err, w.Client.Close())
}

// within closes the connections after a time, unless the timer is stopped before: sessions know no
// deadlines, and a machine that has stopped answering wakes nobody.
func (w *way) within(most time.Duration) *time.Timer {
	return time.AfterFunc(most, func() { w.Close() })
}

// dial connects to a machine. Each one on the way may take so long. socket is that of the server's
// SSH agent.
func dial(ctx context.Context, m machine, a driver.Access, socket string, most time.Duration) (*way, error) {
	var keys []ssh.Signer
	if m.AgentKey != "" {
		key, end, err := fromAgent(ctx, socket, m.AgentKey, most)
		if err != nil {
			return nil, err
		}
		defer func() { _ = end() }() // what is asked of the agent is over
		keys = append(keys, key)
	}
	auth, err := methods(keys, a.Secrets)
	if err != nil {
		return nil, err
	}
	w := &way{hostKeys: map[string]string{}}
	hops := make([]hop, 0, len(m.Jumps)+1)
	for _, j := range m.Jumps {
		user, address, err := splitJump(j, m.User)
		if err != nil {
			return nil, err
		}
		hops = append(hops, hop{user: user, address: address, known: a.HostKeys[address]})
	}
	address := net.JoinHostPort(m.Address, strconv.Itoa(m.Port))
	last := hop{user: m.User, address: address, known: a.HostKeys[address]}
	if m.HostKey != "" {
		last.known = m.HostKey
	}
	for _, h := range append(hops, last) {
		client, key, err := h.dial(ctx, w, auth, most)
		if err != nil {
			if w.Client != nil {
				w.Close()
			}
			return nil, err
		}
		if w.Client != nil {
			w.before = append(w.before, w.Client)
		}
		w.Client, w.hostKeys[h.address] = client, key
	}
	return w, nil
}

// methods are how the server shows who it is: by keys, and from a compute's secrets.
func methods(keys []ssh.Signer, secrets map[string]string) ([]ssh.AuthMethod, error) {
	var out []ssh.AuthMethod
	if pem := secrets[keyPath]; pem != "" {
		signer, err := ssh.ParsePrivateKey([]byte(pem))
		var locked *ssh.PassphraseMissingError
		switch {
		case errors.As(err, &locked):
			return nil, berth.Errorf(berth.Invalid, "the private key has a passphrase, which a server cannot enter; use a key without one")
		case err != nil:
			return nil, berth.Errorf(berth.Invalid, "the private key is not valid; it must be in OpenSSH or PEM format")
		}
		keys = append(keys, signer)
	}
	if len(keys) > 0 {
		out = append(out, ssh.PublicKeys(keys...))
	}
	if pw := secrets[passwordPath]; pw != "" {
		out = append(out, ssh.Password(pw), ssh.KeyboardInteractive(func(_, _ string, questions []string, echos []bool) ([]string, error) {
			answers := make([]string, len(questions))
			for i := range questions {
				if !echos[i] {
					answers[i] = pw
				}
			}
			return answers, nil
		}))
	}
	if len(out) == 0 {
		return nil, berth.Errorf(berth.Invalid, "the compute has neither a private key nor a password; attach the machine with --ssh-private-key-file, --admin-password or --agent-key")
	}
	return out, nil
}

// hop is one machine on the way.
type hop struct {
	user, address string
	known         string // its key or the fingerprint of it; empty: not known yet
}

// dial connects to a machine, through those before it if there are some, and returns the key that
// it showed.
func (h hop) dial(ctx context.Context, through *way, auth []ssh.AuthMethod, most time.Duration) (*ssh.Client, string, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var conn net.Conn
	var err error
	if through.Client == nil {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", h.address)
	} else {
		conn, err = through.DialContext(ctx, "tcp", h.address)
	}
	if err != nil {
		return nil, "", berth.Errorf(berth.Unavailable, "connecting to %s: %w", h.address, err)
	}
	stop := context.AfterFunc(ctx, func() {
		conn.Close()
		if through.Client != nil { // a channel has ended only when the machine before says so
			through.Close()
		}
	})
	defer stop()
	var shown string
	var wrong error
	c, chans, reqs, err := ssh.NewClientConn(conn, h.address, &ssh.ClientConfig{
		User: h.user, Auth: auth, HostKeyAlgorithms: h.algorithms(),
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			shown = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
			wrong = h.check(key)
			return wrong
		},
	})
	switch {
	case wrong != nil:
		conn.Close()
		return nil, "", wrong
	case err != nil && ctx.Err() != nil:
		conn.Close()
		return nil, "", berth.Errorf(berth.Unavailable, "%s did not answer within %s", h.address, most)
	case err != nil && strings.Contains(err.Error(), "unable to authenticate"):
		conn.Close()
		return nil, "", berth.Errorf(berth.Denied, "%s rejected the login of %s with the key or password of this compute", h.address, h.user)
	case err != nil:
		conn.Close()
		return nil, "", berth.Errorf(berth.Unavailable, "%s: %s", h.address, dialout.Clean(err.Error(), 300))
	}
	return ssh.NewClient(c, chans, reqs), shown, nil
}

// check refuses a key that is not the machine's.
func (h hop) check(key ssh.PublicKey) error {
	if h.known == "" || Names(h.known, key) {
		return nil
	}
	return berth.Errorf(berth.Denied, "THE HOST KEY OF %s HAS CHANGED: got %s, expected %s. Either somebody is impersonating the machine, or it was reinstalled; "+
		"if it was reinstalled, detach the compute and attach it again", h.address, ssh.FingerprintSHA256(key), fingerprint(h.known))
}

// algorithms asks a machine for the kind of key that it is known by: it may have several.
func (h hop) algorithms() []string {
	known, _, _, _, err := ssh.ParseAuthorizedKey([]byte(h.known))
	if err != nil {
		return nil // the usual ones
	}
	if known.Type() == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{known.Type()}
}

// run runs a command on the machine and returns what it printed. in may be nil.
func (w *way) run(ctx context.Context, command string, in func() error, session *ssh.Session) error {
	stop := context.AfterFunc(ctx, func() { session.Close() })
	defer stop()
	if err := session.Start(command); err != nil {
		return berth.Errorf(berth.Unavailable, "running a command on the machine: %w", err)
	}
	if in != nil {
		if err := in(); err != nil && ctx.Err() == nil {
			return berth.Errorf(berth.Unavailable, "%w", err)
		}
	}
	if err := session.Wait(); err != nil {
		if ctx.Err() != nil {
			return berth.Errorf(berth.Unavailable, "the machine did not answer in time")
		}
		return fmt.Errorf("%w", err)
	}
	return nil
}
