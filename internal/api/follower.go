package api

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
)

// errCrowded refuses one follower too many: each keeps a connection and a file open, and others
// have to be answered, too.
var errCrowded = berth.Errorf(berth.Unavailable, "too many logs and events are followed at once; try again in a moment, or raise the server's limit of open files")

// followers counts the clients that follow logs, events and metrics.
type followers struct {
	limit int // how many there may be; 0 is no end

	mu  sync.Mutex
	all int
	of  map[string]int // by user
}

// full says whether there is no room for one more of a user. Of all who may follow, a user has at
// most a quarter, or eight, and the last eighth is for administrators, whom only the limit binds.
func (c *followers) full(user string, admin bool) bool {
	if c.limit == 0 {
		return false
	}
	if admin {
		return c.all >= c.limit
	}
	return c.all >= c.limit-max(1, c.limit/8) || c.of[user] >= max(8, c.limit/4)
}

// enter counts one more of a user, unless there are too many.
func (c *followers) enter(user string, admin bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full(user, admin) {
		return false
	}
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.all++
	c.of[user]++
	return true
}

func (c *followers) leave(user string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.of[user]--; c.of[user] == 0 {
		delete(c.of, user)
	}
}

func (c *followers) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}

// follower is taken by an answer that goes on, until done is called. From here on the client has to
// read: one that takes nothing for a while is cut off.
func (c streamCall) follower() (done func(), err error) {
	user := c.who.User
	if !c.s.events.followers.enter(user, c.who.Role == auth.Admin) {
		c.w.Header().Set("Connection", "close") // its descriptor is needed
		return nil, errCrowded
	}
	w := c.s.patient(c.w, c.s.gate.stop)
	c.w = w
	return func() {
		w.allow() // what is buffered goes out after this
		c.s.events.followers.leave(user)
	}, nil
}

// readerPatience is how long a client may take nothing of what it is sent.
const readerPatience = time.Minute

// readerPart is how much of an answer or a file a client has to take within that time.
const readerPart = 256 << 10

// patient gives the writes of an answer deadlines. Once the handler is done, it calls allow for
// what is buffered then.
func (s *Server) patient(w http.ResponseWriter, stop context.Context) *followerWriter {
	patience := s.Patience
	if patience == 0 {
		patience = readerPatience
	}
	return &followerWriter{ResponseWriter: w, rc: http.NewResponseController(w), stop: stop, patience: patience}
}

// A followerWriter gives each write a deadline. When one passes, the write fails and the request's
// context ends.
type followerWriter struct {
	http.ResponseWriter
	rc       *http.ResponseController
	stop     context.Context // ends when the answer has to: the server's stop has a deadline of its own
	patience time.Duration
}

func (w *followerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// allow gives what is written next its time.
func (w *followerWriter) allow() { w.until(time.Now().Add(w.patience)) }

// rest takes the deadline away: while nothing is written nobody keeps the server waiting.
func (w *followerWriter) rest() { w.until(time.Time{}) }

func (w *followerWriter) until(t time.Time) {
	_ = w.rc.SetWriteDeadline(t) // there is none to set in tests without a connection
	if w.stop.Err() != nil {     // looked at afterwards: see untilStop, which sets it, too
		_ = w.rc.SetWriteDeadline(time.Now().Add(lastWrite))
	}
}

func (w *followerWriter) Write(p []byte) (all int, err error) {
	defer w.rest()
	for {
		w.allow()
		n, err := w.ResponseWriter.Write(p[:min(len(p), readerPart)])
		all += n
		if p = p[n:]; err != nil || len(p) == 0 {
			return all, err
		}
	}
}

func (w *followerWriter) Flush() {
	w.allow()
	defer w.rest()
	_ = w.rc.Flush() // a client that has gone ends the request's context
}

// ReadFrom sends a file part by part, so that the kernel may copy it and each has a deadline.
func (w *followerWriter) ReadFrom(r io.Reader) (all int64, err error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		return io.Copy(struct{ io.Writer }{w}, r)
	}
	defer w.rest()
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
