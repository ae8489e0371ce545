//go:build !windows

package agent

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/berthml/berth/internal/devbox"
)

// sshServer is the instance's ssh server. Who reaches it has shown a token to the Berth server,
// which lets only the instance's user and administrators through, so it asks for nothing more. Its
// host key tells a client that it is the same instance as before.
type sshServer struct {
	a      *agent
	config *ssh.ServerConfig
	key    ssh.Signer

	mu   sync.Mutex
	open int
	last time.Time
}

func newSSH(a *agent) (*sshServer, error) {
	key, err := hostKey(filepath.Join(a.dir, "key", "host_ed25519"))
	if key == nil {
		return nil, err
	}
	if err != nil {
		a.warn(fmt.Sprintf("the ssh host key is new and could not be saved: %v", err))
	}
	s := &sshServer{a: a, key: key, config: &ssh.ServerConfig{NoClientAuth: true, ServerVersion: "SSH-2.0-Berth"}}
	s.config.AddHostKey(key)
	return s, nil
}

// hostKey reads the instance's key, or makes it. With an error it may still be a good key, which is
// not kept.
func hostKey(path string) (ssh.Signer, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		return ssh.ParsePrivateKey(b)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, err
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return signer, err
	}
	if err := os.WriteFile(path+".new", pem.EncodeToMemory(block), 0o600); err != nil {
		return signer, err
	}
	return signer, os.Rename(path+".new", path)
}

// publicKey is the host key as known_hosts has it.
func (s *sshServer) publicKey() string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.key.PublicKey())))
}

func (s *sshServer) signal(now time.Time) devbox.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := devbox.Signal{Name: "ssh", Last: s.last, Why: "somebody was connected over ssh"}
	if s.open > 0 {
		g.Busy, g.Last, g.Why = true, now, "somebody is connected over ssh"
		if s.open > 1 {
			g.Why = strconv.Itoa(s.open) + " ssh connections are open"
		}
	}
	return g
}

// serve speaks ssh on a connection until it ends.
func (s *sshServer) serve(ctx context.Context, c net.Conn) {
	defer context.AfterFunc(ctx, func() { c.Close() })()
	conn, channels, requests, err := ssh.NewServerConn(c, s.config)
	if err != nil {
		s.a.log.Info("ssh connection not made", "err", err)
		return
	}
	s.mu.Lock()
	s.open++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.open--
		s.last = time.Now()
		s.mu.Unlock()
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	defer group.Wait()
	defer conn.Close()
	defer cancel()
	group.Go(func() { ssh.DiscardRequests(requests) })
	for ch := range channels {
		switch ch.ChannelType() {
		case "session":
			stream, requests, err := ch.Accept()
			if err != nil {
				return
			}
			group.Go(func() { s.session(ctx, stream, requests) })
		case "direct-tcpip", "direct-streamlocal@openssh.com":
			group.Go(func() { s.forward(ctx, ch) })
		default:
			_ = ch.Reject(ssh.UnknownChannelType, "only sessions and port forwarding to the instance are supported")
		}
	}
}

// forward connects a client with a port or socket of the instance.
func (s *sshServer) forward(ctx context.Context, ch ssh.NewChannel) {
	network, addr, err := destination(ch)
	if err != nil {
		_ = ch.Reject(ssh.Prohibited, err.Error())
		return
	}
	d := net.Dialer{Timeout: 10 * time.Second}
	far, err := d.DialContext(ctx, network, addr)
	if err != nil {
		_ = ch.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	defer far.Close()
	near, requests, err := ch.Accept()
	if err != nil {
		return
	}
	defer near.Close()
	go ssh.DiscardRequests(requests)
	defer context.AfterFunc(ctx, func() { near.Close(); far.Close() })()
	var group sync.WaitGroup
	group.Go(func() {
		_, _ = io.Copy(far, near)
		if w, ok := far.(interface{ CloseWrite() error }); ok {
			_ = w.CloseWrite()
		}
	})
	_, _ = io.Copy(near, far)
	_ = near.CloseWrite()
	group.Wait()
}

// destination is where a forwarded connection goes: to the instance itself, nowhere else.
func destination(ch ssh.NewChannel) (network, addr string, err error) {
	if ch.ChannelType() == "direct-streamlocal@openssh.com" {
		var v struct {
			Path     string
			Reserved string
			Number   uint32
		}
		err := ssh.Unmarshal(ch.ExtraData(), &v)
		return "unix", v.Path, err
	}
	var v struct {
		Host       string
		Port       uint32
		OriginHost string
		OriginPort uint32
	}
	if err := ssh.Unmarshal(ch.ExtraData(), &v); err != nil {
		return "", "", err
	}
	ip := net.ParseIP(v.Host)
	if v.Host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", "", fmt.Errorf("only ports of the instance can be forwarded, not those of %s", v.Host)
	}
	return "tcp", net.JoinHostPort(v.Host, strconv.Itoa(int(v.Port))), nil
}
