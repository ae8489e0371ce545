package slurm

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/ssh"
)

// login is a login node that commands are run on over SSH.
type login struct {
	agent string // socket of the server's SSH agent; empty: none is allowed
	mu    sync.Mutex
	shell *ssh.Shell // nil when there is no connection
	who   account
}

// notFound is the exit code of a shell that does not find a command.
const notFound = 127

// outputMark begins what a command prints: before it the account's start-up files may have printed
// something.
const outputMark = "BERTH-OUTPUT"

// connect logs in, in place of the connection that there is.
func (l *login) connect(ctx context.Context, a driver.Access) (*ssh.Shell, error) {
	shell, err := ssh.Login(ctx, a, l.agent)
	if err != nil {
		return nil, err
	}
	out, err := shell.Run(ctx, `echo "berth:$(id -u):$(id -un):$HOME"`, nil)
	_, line, found := strings.Cut(out, "berth:") // start-up files of the account may print something too
	line, _, _ = strings.Cut(line, "\n")
	f := strings.SplitN(line, ":", 3)
	if err != nil || !found || len(f) != 3 {
		shell.Close()
		return nil, berth.Errorf(berth.Unavailable, "the login node does not say whose account it is: %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shell != nil {
		l.shell.Close()
	}
	l.shell, l.who = shell, account{uid: f[0]}
	return shell, nil
}

func (l *login) account() account {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.who
}

// close ends the connection.
func (l *login) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shell != nil {
		l.shell.Close()
		l.shell = nil
	}
}

// run is [commands.run] on the login node.
func (l *login) run(ctx context.Context, in []byte, name string, args ...string) (string, error) {
	l.mu.Lock()
	shell := l.shell
	l.mu.Unlock()
	if shell == nil {
		return "", berth.Errorf(berth.Unavailable, "the login node is not connected")
	}
	var line strings.Builder
	line.WriteString("echo " + outputMark + " && cd / && exec env")
	if name == submitter {
		line.WriteString(" -i")
		for _, v := range forJobs {
			line.WriteString(" ${" + v + "+" + v + `="$` + v + `"}`)
		}
	}
	line.WriteString(" LC_ALL=C SLURM_TIME_FORMAT=standard " + name)
	for _, a := range args {
		line.WriteString(" " + quote(a))
	}
	out, err := shell.Run(ctx, line.String(), in)
	failed, ran := errors.AsType[*ssh.Failure](err)
	switch {
	case err == nil:
		_, out, _ = strings.Cut(out, outputMark+"\n")
		return out, nil
	case ran && failed.Code == notFound:
		return "", berth.Errorf(berth.Unsupported, "%s is not found on the login node: Slurm's client commands must be in the PATH that the account has without a terminal", name)
	case ran:
		return "", &commandError{name: name, msg: lastLine(failed.Said), err: err}
	case ctx.Err() != nil:
		return "", silent(name)
	}
	return "", err
}
