//go:build !windows

package agent

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/berthml/berth/internal/pty"
	"golang.org/x/crypto/ssh"
)

// session is one shell or command over ssh.
type session struct {
	s      *sshServer
	stream ssh.Channel
	env    []string
	term   string // of a terminal; empty when there is none
	rows   uint32
	cols   uint32
	pty    *os.File
	cmd    *exec.Cmd
	began  bool
	ended  atomic.Bool // its process is gone
}

// session serves the requests of a session until the client is gone.
func (s *sshServer) session(ctx context.Context, stream ssh.Channel, requests <-chan *ssh.Request) {
	x := &session{s: s, stream: stream}
	var group sync.WaitGroup
	defer group.Wait()
	defer stream.Close()
	for r := range requests {
		ok, run := x.request(ctx, r)
		if r.WantReply {
			_ = r.Reply(ok, nil)
		}
		if run != nil { // what ends at once must not close the stream before the reply
			group.Go(run)
		}
	}
	// The client is gone. What still runs for it gets the signal of a terminal that was hung up.
	x.kill(syscall.SIGHUP)
	time.AfterFunc(5*time.Second, func() { x.kill(syscall.SIGKILL) })
}

// kill sends a signal to the session's process and its group, while it is there.
func (x *session) kill(sig syscall.Signal) {
	if x.cmd != nil && !x.ended.Load() {
		killGroup(x.cmd, sig)
	}
}

// wait waits for the end of the session's process.
func (x *session) wait() int {
	code := exitCode(x.s.a.processes.wait(x.cmd))
	x.ended.Store(true)
	return code
}

// request does what a client asks for and says whether it could, and what is to run now that it is
// asked.
func (x *session) request(ctx context.Context, r *ssh.Request) (ok bool, run func()) {
	switch r.Type {
	case "env":
		var v struct{ Name, Value string }
		if ssh.Unmarshal(r.Payload, &v) != nil || x.began || !harmless(v.Name) {
			return false, nil
		}
		x.env = append(x.env, v.Name+"="+v.Value)
	case "pty-req":
		var v struct {
			Term                 string
			Cols, Rows, Wide, Up uint32
			Modes                string
		}
		if ssh.Unmarshal(r.Payload, &v) != nil || x.began {
			return false, nil
		}
		x.term, x.cols, x.rows = v.Term, v.Cols, v.Rows
		if x.term == "" {
			x.term = "dumb"
		}
	case "window-change":
		var v struct{ Cols, Rows, Wide, Up uint32 }
		if ssh.Unmarshal(r.Payload, &v) != nil {
			return false, nil
		}
		x.cols, x.rows = v.Cols, v.Rows
		if x.pty != nil {
			pty.Resize(x.pty, int(x.rows), int(x.cols))
		}
	case "signal":
		var v struct{ Name string }
		if ssh.Unmarshal(r.Payload, &v) != nil || signals[v.Name] == 0 {
			return false, nil
		}
		x.kill(signals[v.Name])
	case "shell":
		return x.begin(ctx, "")
	case "exec":
		var v struct{ Command string }
		if ssh.Unmarshal(r.Payload, &v) != nil || v.Command == "" {
			return false, nil
		}
		return x.begin(ctx, v.Command)
	case "subsystem":
		var v struct{ Name string }
		if ssh.Unmarshal(r.Payload, &v) != nil || v.Name != "sftp" || x.began {
			return false, nil
		}
		x.began = true
		return true, func() {
			err := serveFiles(x.stream, x.s.a.home())
			if err != nil {
				x.s.a.log.Info("sftp session ended", "err", err)
			}
			x.exit(0)
		}
	default:
		return false, nil
	}
	return true, nil
}

// harmless are the variables a client may set, as sshd has them.
func harmless(name string) bool {
	return strings.HasPrefix(name, "LC_") || name == "LANG" || name == "COLORTERM" || name == "TZ" || strings.HasPrefix(name, "VSCODE_")
}

var signals = map[string]syscall.Signal{
	"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL,
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
}

// begin starts the shell, with a command or as a login.
func (x *session) begin(ctx context.Context, command string) (ok bool, run func()) {
	if x.began {
		return false, nil
	}
	x.began = true
	a := x.s.a
	sh := shell()
	cmd := a.command(sh)
	if command != "" {
		cmd.Args = []string{filepath.Base(sh), "-c", command}
	} else {
		cmd.Args = []string{"-" + filepath.Base(sh)} // a login shell
	}
	cmd.Env = append(append(append([]string(nil), a.processes.env...), x.env...), "SSH_CONNECTION=127.0.0.1 0 127.0.0.1 22", "USER="+a.c.User)
	x.cmd = cmd
	var err error
	if x.term != "" {
		run, err = x.onTerminal(cmd)
	} else {
		run, err = x.onPipes(cmd)
	}
	if err != nil {
		a.log.Warn("ssh session not started", "err", err)
		x.cmd = nil
		return true, func() {
			_, _ = io.WriteString(x.stream.Stderr(), "berth: "+err.Error()+"\r\n")
			x.exit(255)
		}
	}
	return true, run
}

// onPipes connects the command with the stream, every byte as it is.
func (x *session) onPipes(cmd *exec.Cmd) (func(), error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = x.stream, x.stream.Stderr()
	// What the command left running may hold its output open for ever.
	cmd.WaitDelay = 3 * time.Second
	if err := x.s.a.processes.start(cmd); err != nil {
		return nil, err
	}
	go func() { // until the client or the command has had enough
		_, _ = io.Copy(in, x.stream)
		in.Close()
	}()
	return func() { x.exit(x.wait()) }, nil
}

// onTerminal gives the command a terminal.
func (x *session) onTerminal(cmd *exec.Cmd) (func(), error) {
	ours, theirs, err := pty.Open()
	if err != nil {
		return nil, err
	}
	pty.Resize(ours, int(x.rows), int(x.cols))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.Env = append(cmd.Env, "TERM="+x.term, "SSH_TTY="+theirs.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = x.s.a.processes.start(cmd)
	theirs.Close()
	if err != nil {
		ours.Close()
		return nil, err
	}
	x.pty = ours
	go func() { _, _ = io.Copy(ours, x.stream) }()
	copied := make(chan struct{})
	go func() {
		_, _ = io.Copy(x.stream, ours) // until the last process on the terminal is gone
		close(copied)
	}()
	return func() {
		code := x.wait()
		t := time.NewTimer(time.Second)
		defer t.Stop()
		select {
		case <-copied:
		case <-t.C: // something in the background keeps the terminal
		}
		x.exit(code)
		ours.Close()
	}, nil
}

// exit tells the client how it ended.
func (x *session) exit(code int) {
	_, _ = x.stream.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(code)}))
	_ = x.stream.CloseWrite()
	x.stream.Close()
}

func exitCode(err error) int {
	var e *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return 0
	case errors.As(err, &e):
		if ws, ok := e.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal())
		}
		return e.ExitCode()
	}
	return 255
}
