//go:build unix

// Package sshtest is an SSH server for tests: on this machine, with an account that has a home of
// its own.
package sshtest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh"
)

// Password is one that is let in.
const Password = "the password"

// Server is an SSH server.
type Server struct {
	Home   string // of the account
	Addr   string
	client ssh.PublicKey // that is let in
	l      net.Listener

	mu      sync.Mutex
	hostKey ssh.Signer
	startup string // what the account's shell does first
	mute    string // see Mute
	conns   []net.Conn
	count   int // connections that were let in
}

// NewKey makes a key and its text.
func NewKey(t testing.TB) (ssh.Signer, string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer, string(pem.EncodeToMemory(block))
}

// Start starts a server that lets one key in.
func Start(t testing.TB, home string, client ssh.PublicKey) *Server {
	t.Helper()
	s := &Server{Home: home, client: client}
	s.NewHostKey(t)
	s.listen(t, "127.0.0.1:0")
	return s
}

// NewHostKey gives the server another key to show.
func (s *Server) NewHostKey(t testing.TB) {
	t.Helper()
	key, _ := NewKey(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hostKey = key
}

// Startup sets what the account's shell does before each command.
func (s *Server) Startup(script string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startup = script
}

// Steps at which a server can fall silent, see Mute.
const (
	MuteHandshake = "handshake" // says nothing at all
	MuteLogin     = "login"     // lets in, and answers no request
	MuteCommand   = "command"   // opens sessions, and runs nothing in them
	MuteCopy      = "copy"      // runs commands, but takes no program
	MuteForward   = "forward"   // opens connections to other machines, and passes nothing on
)

// Mute makes the server fall silent at a step; its connections stay open.
func (s *Server) Mute(step string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute = step
}

func (s *Server) muted(step string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mute == step
}

// Client is the key that is let in.
func (s *Server) Client() ssh.PublicKey { return s.client }

// Trust lets another key in instead.
func (s *Server) Trust(client ssh.PublicKey) { s.client = client }

// Again starts a server that was stopped.
func (s *Server) Again(t testing.TB) {
	t.Helper()
	s.listen(t, s.Addr)
}

// Count is how many connections were let in.
func (s *Server) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

func (s *Server) listen(t testing.TB, addr string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.Addr, s.l = l.Addr().String(), l
	s.mu.Unlock()
	t.Cleanup(s.Stop)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			go s.serve(c)
		}
	}()
}

// Cut ends all connections.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
}

// Stop ends the server and all connections.
func (s *Server) Stop() {
	s.mu.Lock()
	l := s.l
	s.mu.Unlock()
	l.Close()
	s.Cut()
}

func (s *Server) serve(c net.Conn) {
	if s.muted(MuteHandshake) {
		return // until it is cut
	}
	config := &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if string(key.Marshal()) != string(s.client.Marshal()) {
				return nil, errors.New("not known")
			}
			return nil, nil
		},
		PasswordCallback: func(_ ssh.ConnMetadata, pw []byte) (*ssh.Permissions, error) {
			if string(pw) != Password {
				return nil, errors.New("wrong")
			}
			return nil, nil
		},
	}
	s.mu.Lock()
	config.AddHostKey(s.hostKey)
	s.mu.Unlock()
	deaf := &deafConn{Conn: c}
	conn, chans, reqs, err := ssh.NewServerConn(deaf, config)
	if err != nil {
		c.Close()
		return
	}
	s.mu.Lock()
	s.count++
	s.mu.Unlock()
	go ssh.DiscardRequests(reqs)
	for ch := range chans {
		switch {
		case s.muted(MuteLogin):
		case ch.ChannelType() == "session":
			go s.session(ch)
		case ch.ChannelType() == "direct-tcpip" && s.muted(MuteForward):
			if _, reqs, err := ch.Accept(); err == nil {
				deaf.on.Store(true)
				go ssh.DiscardRequests(reqs)
			}
		case ch.ChannelType() == "direct-tcpip":
			go forward(ch)
		default:
			_ = ch.Reject(ssh.UnknownChannelType, "no")
		}
	}
	conn.Close()
}

// deafConn is a connection of which nothing more is heard once it is on.
type deafConn struct {
	net.Conn
	on atomic.Bool
}

func (d *deafConn) Read(b []byte) (int, error) {
	for {
		if n, err := d.Conn.Read(b); err != nil || !d.on.Load() {
			return n, err
		}
	}
}

// forward is what a jump host does.
func forward(nc ssh.NewChannel) {
	var to struct {
		Host     string
		Port     uint32
		From     string
		FromPort uint32
	}
	if ssh.Unmarshal(nc.ExtraData(), &to) != nil {
		_ = nc.Reject(ssh.ConnectionFailed, "what?")
		return
	}
	c, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.ParseIP(to.Host), Port: int(to.Port)})
	if err != nil {
		_ = nc.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	go ssh.DiscardRequests(reqs)
	go func() {
		_, _ = io.Copy(ch, c)
		ch.Close()
	}()
	_, _ = io.Copy(c, ch)
	c.Close()
}

// session runs one command, in a session of its own as sshd does.
func (s *Server) session(nc ssh.NewChannel) {
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	for r := range reqs {
		if s.muted(MuteCommand) {
			continue
		}
		if r.Type != "exec" {
			_ = r.Reply(false, nil)
			continue
		}
		var v struct{ Command string }
		_ = ssh.Unmarshal(r.Payload, &v)
		_ = r.Reply(true, nil)
		if s.muted(MuteCopy) && strings.Contains(v.Command, "gzip") {
			continue
		}
		s.mu.Lock()
		script := s.startup + v.Command
		s.mu.Unlock()
		cmd := exec.Command("sh", "-c", script) //nolint:noctx // it ends with its session
		cmd.Env = []string{"HOME=" + s.Home, "PATH=" + os.Getenv("PATH"), "GORACE=" + os.Getenv("GORACE")}
		cmd.Dir, cmd.Stdout, cmd.Stderr = s.Home, ch, ch.Stderr()
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		in, err := cmd.StdinPipe()
		if err != nil || cmd.Start() != nil {
			return
		}
		go func() {
			_, _ = io.Copy(in, ch)
			in.Close()
		}()
		status := struct{ Status uint32 }{}
		if err := cmd.Wait(); err != nil {
			status.Status = 1
		}
		_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(&status))
		return
	}
}

// HostPort is its address in two parts.
func (s *Server) HostPort() (host, port string) {
	host, port, _ = strings.Cut(s.Addr, ":")
	return host, port
}
