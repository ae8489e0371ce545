package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// conversation is this terminal, or what is piped in, as the standard input of a job.
type conversation struct {
	s    *session
	conn io.ReadWriteCloser
	mu   sync.Mutex // of writes to conn
	end  func()     // gives the terminal back

	ready chan struct{} // closed when the job's command takes input
}

// onTerminal reports whether a person sits at both ends.
func (s *session) onTerminal() bool { return s.out.tty && term.IsTerminal(int(os.Stdin.Fd())) }

// describeTerminal adds to a job's properties and variables what its terminal is like.
func (s *session) describeTerminal(props, vars map[string]string) {
	props[berth.StdinProperty] = "pipe"
	if !s.onTerminal() {
		return
	}
	props[berth.StdinProperty] = "terminal"
	if columns, rows, err := term.GetSize(int(os.Stdin.Fd())); err == nil {
		props[berth.TerminalProperty] = fmt.Sprintf("%dx%d", rows, columns)
	}
	for _, name := range []string{"TERM", "COLORTERM", "LANG", "LC_ALL", "LC_CTYPE"} {
		if value := os.Getenv(name); value != "" && vars[name] == "" {
			vars[name] = value
		}
	}
}

// converse gives a job this terminal until it has ended, and ends with its exit code. Before the
// command runs, Ctrl-C cancels the job; then the terminal sends it on.
func (s *session) converse(parent context.Context, c *client.Client, name string, rev berth.Rev, outputs map[string]string) error {
	ctx, stop := interruptible(parent)
	defer stop()
	conn, err := c.Input(ctx, name)
	if err != nil {
		return err
	}
	v := &conversation{s: s, conn: conn, end: func() {}, ready: make(chan struct{})}
	defer conn.Close()
	defer v.restore()
	w := &watcher{s: s, c: c, job: name, rev: rev, raw: s.onTerminal(), line: s.newProgress()}
	go v.serve(w)
	j, err := w.watch(ctx)
	v.restore()
	if interrupted(ctx, err) {
		if err := c.Cancel(parent, name); err != nil {
			return err
		}
		s.say("canceled %s", name)
		return exitError(exitInterrupted)
	}
	if err != nil {
		return err
	}
	return s.conclude(ctx, c, j, outputs)
}

// restore gives the terminal back.
func (v *conversation) restore() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.end()
	v.end = func() {}
}

// serve sends what is typed once the job's command takes it.
func (v *conversation) serve(w *watcher) {
	var b [1]byte
	if _, err := io.ReadFull(v.conn, b[:]); err != nil || b[0] != berth.InputReady {
		return // the watcher tells how the job ended
	}
	if w.raw {
		w.line.set("")
		if err := v.takeTerminal(); err != nil {
			v.s.warn("the terminal cannot be given to the job: %v", err)
			return
		}
	}
	go v.send()
	_, _ = v.conn.Read(b[:]) // until the connection ends
	v.restore()              // so that Ctrl-C works again
}

// takeTerminal lets all keys through and follows the size of the window.
func (v *conversation) takeTerminal() error {
	fd := int(os.Stdin.Fd())
	old, err := term.MakeRaw(fd)
	if err != nil {
		return err
	}
	resize := func() {
		if columns, rows, err := term.GetSize(fd); err == nil {
			v.write(berth.InputFrame{Kind: berth.InputResize, Rows: rows, Columns: columns})
		}
	}
	stop := watchSize(resize)
	v.mu.Lock()
	v.end = func() {
		stop()
		_ = term.Restore(fd, old)
	}
	v.mu.Unlock()
	resize()
	return nil
}

// send sends standard input.
func (v *conversation) send() {
	buf := make([]byte, 32<<10)
	for {
		n, err := os.Stdin.Read(buf)
		if n > 0 && !v.write(berth.InputFrame{Kind: berth.InputData, Data: buf[:n]}) {
			return
		}
		if err != nil {
			v.write(berth.InputFrame{Kind: berth.InputEnd})
			return
		}
	}
}

func (v *conversation) write(f berth.InputFrame) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, err := f.WriteTo(v.conn)
	return err == nil
}
