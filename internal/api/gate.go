package api

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// errStopping is why a server that stops refuses requests and ends streams.
var errStopping = berth.Errorf(berth.Unavailable, "the server is stopping; try again in a moment")

// retrySeconds is when clients that were refused for a passing reason should come back.
const retrySeconds = "1"

// lastWrite is how long a stream may still write once the server stops.
const lastWrite = time.Second

// A gate counts the requests under way, and lets no more in once the server stops.
type gate struct {
	stop   context.Context // ends when the server begins to stop
	shut   context.CancelCauseFunc
	cut    context.Context // ends when the server waits no longer for what is under way
	cutOff context.CancelFunc
	mu     sync.Mutex
	closed bool
	inside int
	empty  chan struct{} // closed when it is shut and nobody is inside
}

func newGate() *gate {
	g := &gate{empty: make(chan struct{})}
	g.stop, g.shut = context.WithCancelCause(context.Background())
	g.cut, g.cutOff = context.WithCancel(context.Background())
	return g
}

// enter reports whether a request is let in. One that was has to leave.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.closed && g.inside == 0 {
		close(g.empty)
	}
}

// close lets nobody in any more.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.closed = true
	if g.inside == 0 {
		close(g.empty)
	}
	g.shut(errStopping)
}

// Stop begins the end of the server: new requests are refused and streams end. It returns when all
// requests that were under way have been answered, or with the error of ctx when they have not been
// until it ended. Then the connections of runners are cut off.
func (s *Server) Stop(ctx context.Context) error {
	s.gate.close()
	select {
	case <-s.gate.empty:
		return nil
	case <-ctx.Done():
		s.gate.cutOff()
		return ctx.Err()
	}
}

// untilStop is ctx for an answer that goes on for as long as it is read: it ends when the server
// stops, too.
func (g *gate) untilStop(ctx context.Context, w http.ResponseWriter) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	forget := context.AfterFunc(g.stop, func() {
		// A client that does not read must not hold up the end.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(lastWrite))
		end(errStopping)
	})
	return ctx, func() { forget(); end(nil) }
}
