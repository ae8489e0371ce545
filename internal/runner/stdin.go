package runner

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/pty"
)

// An Inputter is a [Home] that passes on what the user of a task types.
type Inputter interface {
	// Input opens the stream of frames, see [berth.ReadInput]. It ends when the user has gone.
	Input(ctx context.Context, t Task) (io.ReadCloser, error)
}

// stdin is the standard input of a command that somebody types, and its terminal where it has one.
type stdin struct {
	t      *task
	r      running
	ours   *os.File // end of the pipe, or of the terminal
	theirs *os.File // the command's end, until it was started
	log    *os.File // takes what is written to the terminal; nil without one
	cancel context.CancelFunc
	typing sync.WaitGroup
	shown  chan struct{} // closed when all that was written is in the log
}

// hangUp is how long a command may take to end after its user has gone.
const hangUp = 5 * time.Second

// openStdin makes the input that the launch asks for, nil where it asks for none.
func (t *task) openStdin(s *Spec) (*stdin, error) {
	if t.l.Stdin == nil {
		return nil, nil //nolint:nilnil // it is optional
	}
	if s.env != nil && s.env.Container != nil {
		return nil, berth.Errorf(berth.Unsupported, "a command in a container has no standard input here; run it without -i, or in an environment without an image")
	}
	in := &stdin{t: t, shown: make(chan struct{})}
	var err error
	if !t.l.Stdin.Terminal {
		close(in.shown)
		in.theirs, in.ours, err = os.Pipe()
		if err == nil {
			s.stdin = in.theirs
		}
		return in, err
	}
	if in.ours, in.theirs, err = pty.Open(); err != nil {
		return nil, berth.Errorf(berth.Unsupported, "%w", err)
	}
	pty.Resize(in.ours, t.l.Stdin.Rows, t.l.Stdin.Columns)
	if in.log, err = dupFile(s.log); err != nil {
		in.ours.Close()
		in.theirs.Close()
		return nil, err
	}
	s.stdin, s.terminal = in.theirs, true
	return in, nil
}

// dupFile is another descriptor of an open file.
func dupFile(fd int) (*os.File, error) {
	syscall.ForkLock.RLock() // nobody inherits it
	defer syscall.ForkLock.RUnlock()
	n, err := syscall.Dup(fd)
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(n)
	return os.NewFile(uintptr(n), "log"), nil
}

// begin passes on what is typed, and what is written to a terminal, from the start of the command.
func (in *stdin) begin(ctx context.Context, r running) {
	if in == nil {
		return
	}
	in.r = r
	in.theirs.Close()
	ctx, in.cancel = context.WithCancel(ctx)
	if in.log != nil {
		go func() {
			defer close(in.shown)
			_, _ = io.Copy(in.log, in.ours) // until nobody has the terminal open
		}()
	}
	in.typing.Go(func() { in.take(ctx) })
}

// take passes on what is typed.
func (in *stdin) take(ctx context.Context) {
	frames, err := in.connect(ctx)
	if err != nil {
		if ctx.Err() == nil {
			in.hangUp("its standard input cannot be had: " + err.Error())
		}
		return
	}
	defer frames.Close()
	defer context.AfterFunc(ctx, func() { frames.Close() })()
	for ended := false; ; {
		f, err := berth.ReadInput(frames)
		switch {
		case ctx.Err() != nil, err != nil && ended && in.log == nil:
			return
		case err != nil:
			in.hangUp("whoever typed its input has gone")
			return
		case f.Kind == berth.InputResize && in.log != nil:
			pty.Resize(in.ours, f.Rows, f.Columns)
		case f.Kind == berth.InputEnd && in.log == nil:
			ended = true
			in.ours.Close()
		case f.Kind == berth.InputData && !ended:
			if _, err := in.ours.Write(f.Data); err != nil && in.log == nil {
				ended = true // the command has closed it
			}
		}
	}
}

// connect opens the stream of what is typed. A server that is away is waited for.
func (in *stdin) connect(ctx context.Context) (io.ReadCloser, error) {
	home, ok := in.t.o.Home.(Inputter)
	if !ok {
		return nil, errors.New("this runner passes on no input")
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		frames, err := home.Input(ctx, Task{in.t.l.Task, in.t.l.Home.Token})
		if err == nil || berth.CodeOf(err) != berth.Unavailable {
			return frames, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

// hangUp ends a command whose user has gone.
func (in *stdin) hangUp(why string) {
	if r, ok := in.r.(interface{ hangUp() }); ok {
		r.hangUp()
	}
	in.t.o.Control.Stop(Stop{Grace: hangUp, Why: why})
}

// drain brings what the command wrote to its terminal into the log. What it left running may write
// on, which nobody waits for.
func (in *stdin) drain() {
	if in == nil || in.log == nil {
		return
	}
	_ = in.ours.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	<-in.shown
}

// close lets go of everything.
func (in *stdin) close() {
	if in == nil {
		return
	}
	if in.cancel != nil {
		in.cancel()
		in.typing.Wait()
	}
	in.ours.Close()
	in.theirs.Close()
	if in.log != nil {
		if in.cancel != nil {
			<-in.shown
		}
		in.log.Close()
	}
}
