package api

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// errCrowded refuses one follower too many: each keeps a connection and a file open, and others
// have to be answered, too.
var errCrowded = berth.Errorf(berth.Unavailable, "too many logs and events are followed at once; try again in a moment, or raise the server's limit of open files")

// A crowd is those who follow logs, events and metrics.
type crowd struct {
	limit int // how many there may be; 0 is no end

	mu  sync.Mutex
	all int
	of  map[string]int // by user
}

// share is how many of the followers may be of one user: some are left for others.
func (c *crowd) share() int { return max(1, c.limit*3/4) }

// enter counts one more of a user, unless there are too many.
func (c *crowd) enter(user string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limit > 0 && (c.all >= c.limit || c.of[user] >= c.share()) {
		return false
	}
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.all++
	c.of[user]++
	return true
}

func (c *crowd) leave(user string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.of[user]--; c.of[user] == 0 {
		delete(c.of, user)
	}
}

func (c *crowd) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}

// follower is taken by an answer that goes on, until done is called. From here on the client has to
// read: one that takes nothing for a while is cut off.
func (c streamCall) follower() (done func(), err error) {
	user := c.who.User
	if !c.s.events.crowd.enter(user) {
		c.w.Header().Set("Connection", "close") // its descriptor is needed
		return nil, errCrowded
	}
	patience := c.s.Patience
	if patience == 0 {
		patience = readerPatience
	}
	c.w = &followerWriter{ResponseWriter: c.w, rc: http.NewResponseController(c.w), stop: c.s.gate.stop, patience: patience}
	return func() { c.s.events.crowd.leave(user) }, nil
}

// readerPatience is how long a follower may take nothing of what it is sent.
const readerPatience = time.Minute

// readerPart is how much of a file is sent within that time.
const readerPart = 1 << 20

// A followerWriter gives each write a deadline. When one passes, the write fails and the request's
// context ends.
type followerWriter struct {
	http.ResponseWriter
	rc       *http.ResponseController
	stop     context.Context // ends when the server stops, which has a deadline of its own
	patience time.Duration
}

func (w *followerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *followerWriter) allow() {
	if w.stop.Err() == nil {
		_ = w.rc.SetWriteDeadline(time.Now().Add(w.patience)) // there is none to set in tests without a connection
	}
}

func (w *followerWriter) Write(p []byte) (int, error) {
	w.allow()
	return w.ResponseWriter.Write(p)
}

func (w *followerWriter) Flush() {
	w.allow()
	_ = w.rc.Flush() // a client that has gone ends the request's context
}

// ReadFrom sends a file part by part, so that the kernel may copy it and each has a deadline.
func (w *followerWriter) ReadFrom(r io.Reader) (all int64, err error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		return io.Copy(struct{ io.Writer }{w}, r)
	}
	for limited.N > 0 {
		w.allow()
		size := min(limited.N, readerPart)
		n, err := io.Copy(w.ResponseWriter, &io.LimitedReader{R: limited.R, N: size})
		all, limited.N = all+n, limited.N-n
		if err != nil || n < size {
			return all, err
		}
	}
	return all, nil
}
