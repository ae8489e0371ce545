// Package sshd serves ssh over a connection, with sessions that run beside a task.
package sshd

import (
	"context"
	"crypto/ed25519"
	"io"
	"net"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// An Exec runs a command beside a task, see [driver.Execer].
type Exec func(context.Context, driver.Command) (int, error)

// Serve speaks ssh on c until that ends or ctx does. Whoever has the connection has shown who they
// are, and is asked for nothing more.
func Serve(ctx context.Context, c net.Conn, key ed25519.PrivateKey, run Exec) error {
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return err
	}
	config := &ssh.ServerConfig{NoClientAuth: true, ServerVersion: "SSH-2.0-Berth"}
	config.AddHostKey(signer)
	defer context.AfterFunc(ctx, func() { c.Close() })()
	conn, channels, requests, err := ssh.NewServerConn(c, config)
	if err != nil {
		return berth.Errorf(berth.Invalid, "the connection does not speak ssh: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer conn.Close()
	defer cancel()
	group.Go(func() { ssh.DiscardRequests(requests) })
	for ch := range channels {
		if ch.ChannelType() != "session" {
			_ = ch.Reject(ssh.UnknownChannelType, "a job has sessions only: ports are not forwarded")
			continue
		}
		stream, requests, err := ch.Accept()
		if err != nil {
			return nil // the client has gone
		}
		s := &session{stream: stream, run: run, resize: make(chan driver.WindowSize, 1)}
		group.Go(func() { s.serve(ctx, requests) })
	}
	return nil
}

// session is one shell or command.
type session struct {
	stream   ssh.Channel
	run      Exec
	terminal bool
	size     driver.WindowSize
	resize   chan driver.WindowSize
	began    bool
}

// serve answers the requests of a session until the client is gone, which ends its command.
func (s *session) serve(ctx context.Context, requests <-chan *ssh.Request) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer s.stream.Close()
	defer cancel()
	for r := range requests {
		args, start, ok := s.request(r)
		if r.WantReply {
			_ = r.Reply(ok, nil)
		}
		if start { // what ends at once must not close the stream before the reply
			group.Go(func() { s.execute(ctx, args) })
		}
	}
}

// request does what a client asks for, and says what is to be executed.
func (s *session) request(r *ssh.Request) (args []string, start, ok bool) {
	switch r.Type {
	case "pty-req":
		var v struct {
			Term                       string
			Columns, Rows, Width, High uint32
			Modes                      string
		}
		if ssh.Unmarshal(r.Payload, &v) != nil || s.began {
			return nil, false, false
		}
		s.terminal, s.size = true, driver.WindowSize{Rows: int(v.Rows), Columns: int(v.Columns)}
		return nil, false, true
	case "window-change":
		var v struct{ Columns, Rows, Width, High uint32 }
		if ssh.Unmarshal(r.Payload, &v) != nil {
			return nil, false, false
		}
		select {
		case <-s.resize: // the newest counts
		default:
		}
		s.resize <- driver.WindowSize{Rows: int(v.Rows), Columns: int(v.Columns)}
		return nil, false, true
	case "shell", "exec":
		var v struct{ Command string }
		if s.began || r.Type == "exec" && (ssh.Unmarshal(r.Payload, &v) != nil || v.Command == "") {
			return nil, false, false
		}
		s.began = true
		if v.Command != "" {
			args = []string{"/bin/sh", "-c", v.Command}
		}
		return args, true, true
	}
	return nil, false, false
}

// execute runs the command and tells the client how it ended.
func (s *session) execute(ctx context.Context, args []string) {
	c := driver.Command{Args: args, Stdin: s.stream, Stdout: s.stream, Stderr: s.stream.Stderr()}
	if s.terminal {
		c.Terminal, c.Size, c.Resize = true, s.size, s.resize
	}
	in, done := s.input()
	defer done()
	c.Stdin = in
	code, err := s.run(ctx, c)
	if err != nil {
		_, _ = io.WriteString(s.stream.Stderr(), "berth: "+err.Error()+"\r\n")
		code = 255
	}
	_, _ = s.stream.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(code)}))
	_ = s.stream.CloseWrite()
	s.stream.Close()
}

// input is what the client sends. A command is waited for together with whoever reads its input,
// so that ends with the command: with a pipe, not with the client.
func (s *session) input() (io.Reader, func()) {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, s.stream)
		w.CloseWithError(err)
	}()
	return r, func() { r.Close() }
}
