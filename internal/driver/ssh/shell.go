package ssh

import (
	"bytes"
	"context"
	"errors"
	"io"

	"golang.org/x/crypto/ssh"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// Shell runs commands on a machine over one connection, for drivers whose engine is used by
// commands on a login node.
type Shell struct {
	way  *way
	gate chan struct{} // as many sessions at once as servers let one connection have
}

const (
	shellSessions = 8        // OpenSSH's MaxSessions is 10
	shellOutput   = 64 << 20 // most that a command may print
)

// Login connects to the machine that a compute's document describes, as a machine over SSH does.
// socket is that of the server's SSH agent, if the operator allows it.
func Login(ctx context.Context, a driver.Access, socket string) (*Shell, error) {
	m, err := readMachine(a.Properties)
	if err != nil {
		return nil, err
	}
	w, err := dial(ctx, m, a, socket, defaultPatience.dial)
	if err != nil {
		return nil, err
	}
	return &Shell{way: w, gate: make(chan struct{}, shellSessions)}, nil
}

// HostKeys are the keys that the machines on the way showed, by address.
func (s *Shell) HostKeys() map[string]string { return s.way.hostKeys }

// Close ends the connection, and every command with it.
func (s *Shell) Close() error { return s.way.Close() }

// Wait returns when the connection has ended.
func (s *Shell) Wait() error { return s.way.Wait() }

// Run runs a command with an input and returns what it printed. The error is a *Failure when the
// command ran and failed.
func (s *Shell) Run(ctx context.Context, command string, in []byte) (string, error) {
	select {
	case s.gate <- struct{}{}:
		defer func() { <-s.gate }()
	case <-ctx.Done():
		return "", berth.Errorf(berth.Unavailable, "the login node did not answer in time")
	}
	session, err := s.way.NewSession()
	if err != nil {
		return "", berth.Errorf(berth.Unavailable, "opening a session on the login node: %w", err)
	}
	defer session.Close()
	var out limited
	var said tail
	session.Stdin, session.Stdout, session.Stderr = bytes.NewReader(in), &out, &said
	err = s.way.run(ctx, command, nil, session)
	var exit *ssh.ExitError
	switch {
	case errors.As(err, &exit):
		return "", &Failure{Code: exit.ExitStatus(), Said: said.orElse(nil)}
	case err != nil:
		return "", berth.Errorf(berth.Unavailable, "a command on the login node: %w", err)
	case out.over:
		return "", berth.Errorf(berth.Unavailable, "a command on the login node printed more than %d bytes", shellOutput)
	}
	return out.String(), nil
}

// Failure is how a command failed.
type Failure struct {
	Code int
	Said string // the end of what it said
}

func (f *Failure) Error() string { return f.Said }

// limited keeps what a command prints, up to a limit.
type limited struct {
	bytes.Buffer
	over bool
}

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > shellOutput {
		l.over = true
		return 0, io.ErrShortWrite
	}
	return l.Buffer.Write(p)
}
