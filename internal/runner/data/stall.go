package data

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/berthml/berth"
)

// A server that neither goes on nor closes its connection would keep a task for ever.

// stalled is after how long without a byte a request is given up, to be tried again. It is longer
// than an answer may take to begin.
const stalled = 3 * time.Minute

// guard gives a request up when nothing of it, or of its answer, goes over the wire for a while.
type guard struct {
	after time.Duration
	timer *time.Timer
	ctx   context.Context
	end   context.CancelCauseFunc
}

var errStalled = errors.New("the transfer stalled")

func newGuard(ctx context.Context, after time.Duration) *guard {
	g := &guard{after: after}
	g.ctx, g.end = context.WithCancelCause(ctx)
	g.timer = time.AfterFunc(after, func() { g.end(errStalled) })
	return g
}

// stop ends it.
func (g *guard) stop() {
	g.timer.Stop()
	g.end(nil)
}

// cut is the error of a request that was given up, nil of others.
func (g *guard) cut() error {
	if !errors.Is(context.Cause(g.ctx), errStalled) {
		return nil
	}
	return berth.Errorf(berth.Unavailable, "nothing was transferred for %s", g.after)
}

// watched is a body that is guarded.
type watched struct {
	io.Reader
	g *guard
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.g.timer.Reset(w.g.after)
	}
	return n, err
}

// answerBody is the body of an answer; its end is that of the request.
type answerBody struct {
	watched
	io.Closer
}

func (a answerBody) Read(p []byte) (int, error) {
	n, err := a.watched.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		if cut := a.g.cut(); cut != nil {
			err = cut
		}
	}
	return n, err
}

func (a answerBody) Close() error {
	defer a.g.stop()
	return a.Closer.Close()
}
