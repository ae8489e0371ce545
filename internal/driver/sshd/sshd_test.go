package sshd_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/sshd"
)

// serve is a client of a server whose commands are run by f.
func serve(t *testing.T, f sshd.Exec) *ssh.Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- sshd.Serve(ctx, far, ed25519.NewKeyFromSeed(make([]byte, 32)), f) }()
	conn, channels, requests, err := ssh.NewClientConn(near, "job", &ssh.ClientConfig{HostKeyCallback: ssh.InsecureIgnoreHostKey()})
	if err != nil {
		t.Fatal(err)
	}
	c := ssh.NewClient(conn, channels, requests)
	t.Cleanup(func() {
		c.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestSessions: what a command writes, reads and returns goes to and comes from the client.
func TestSessions(t *testing.T) {
	c := serve(t, func(_ context.Context, cmd driver.Command) (int, error) {
		if len(cmd.Args) == 3 && cmd.Args[2] == "fail" {
			return 0, berth.Errorf(berth.Conflict, "the task has ended")
		}
		in, err := io.ReadAll(cmd.Stdin)
		if err != nil {
			return 0, err
		}
		fmt.Fprintf(cmd.Stdout, "%q reads %s", cmd.Args, in)
		fmt.Fprint(cmd.Stderr, "aside")
		return 5, nil
	})
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	var out, aside bytes.Buffer
	s.Stdin, s.Stdout, s.Stderr = bytes.NewBufferString("words"), &out, &aside
	var exit *ssh.ExitError
	if err := s.Run("say it"); !errors.As(err, &exit) || exit.ExitStatus() != 5 {
		t.Errorf("it ended with %v", err)
	}
	if got := out.String(); got != `["/bin/sh" "-c" "say it"] reads words` || aside.String() != "aside" {
		t.Errorf("%q, %q", got, aside.String())
	}
	if s, err = c.NewSession(); err != nil {
		t.Fatal(err)
	}
	aside.Reset()
	s.Stderr = &aside
	if err := s.Run("fail"); !errors.As(err, &exit) || exit.ExitStatus() != 255 || aside.String() != "berth: the task has ended\r\n" {
		t.Errorf("%v, %q", err, aside.String())
	}
	if _, err := c.Dial("tcp", "127.0.0.1:22"); err == nil {
		t.Error("a port was forwarded")
	}
}

// TestTerminal: a shell has a terminal of the client's size, and follows it; it is ended when the
// client goes.
func TestTerminal(t *testing.T) {
	ended := make(chan struct{})
	c := serve(t, func(ctx context.Context, cmd driver.Command) (int, error) {
		fmt.Fprintf(cmd.Stdout, "%d %v %v\n", len(cmd.Args), cmd.Terminal, cmd.Size)
		fmt.Fprintln(cmd.Stdout, <-cmd.Resize)
		<-ctx.Done()
		close(ended)
		return 0, ctx.Err()
	})
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.RequestPty("xterm", 24, 80, nil), s.Shell(), s.WindowChange(50, 100)); err != nil {
		t.Fatal(err)
	}
	want := "0 true {24 80}\n{50 100}\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(out, got); err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	s.Close()
	<-ended
}
