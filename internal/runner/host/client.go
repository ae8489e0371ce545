package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/socket"
)

// Client talks to a host. It keeps connections and may be used concurrently. Errors of a host that
// is not there are Unavailable and have ErrGone in their chain.
type Client struct {
	dial func(context.Context) (net.Conn, error)

	mu       sync.Mutex
	idle     []*conn
	closed   bool
	starts   []*start  // wait for the call of Start that is under way
	starting bool      // one is
	removals []removal // wait to be sent together
}

// start is a call of Start.
type start struct {
	id   berth.TaskID
	body []byte
	done chan struct{} // closed when err is set, or when lead is: then the call has to send what waits
	lead bool
	err  error
}

// removal is a call of Remove.
type removal struct {
	id    berth.TaskID
	term  int64
	proof string
	done  chan error
}

// together is how long a removal waits for others: nobody waits for it, and each call wakes two
// processes.
const together = 3 * time.Millisecond

type conn struct {
	net.Conn
	r   *bufio.Reader
	out []byte
}

// maxIdle is how many connections are kept.
const maxIdle = 16

// ErrGone is in the chain of errors that mean: no host listens.
var ErrGone = errors.New("no runner host")

// NewClient makes a client of the host of dir.
func NewClient(dir string) *Client {
	path := socketPath(dir)
	return NewClientFunc(func(ctx context.Context) (net.Conn, error) {
		if _, err := os.Lstat(path); err == nil {
			if err := socket.Private(filepath.Dir(path)); err != nil {
				return nil, err
			}
		}
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	})
}

// NewClientFunc makes a client that reaches its host through dial, for hosts on other machines.
func NewClientFunc(dial func(context.Context) (net.Conn, error)) *Client { return &Client{dial: dial} }

// Close lets connections go. A call that is under way ends as it would have.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, x := range c.idle {
		x.Close()
	}
	c.idle = nil
}

// Start starts a task unless the host knows it. Calls that come while one is under way go together
// with the next one: each wakes two processes.
func (c *Client) Start(ctx context.Context, l *berth.Launch) error {
	in := *l
	in.Term, in.TermProof = berth.TermOf(ctx), berth.TermProof(ctx)
	body, err := json.Marshal(&in)
	if err != nil {
		return err
	}
	s := &start{id: l.Task, body: body, done: make(chan struct{})}
	c.mu.Lock()
	if c.starting {
		c.starts = append(c.starts, s)
		c.mu.Unlock()
		select {
		case <-s.done:
		case <-ctx.Done():
			if !c.withdraw(s) {
				<-s.done // it is being sent, or has to send
			}
			if !s.lead {
				return unreachable(ctx, ctx.Err())
			}
		}
		if !s.lead {
			return s.err
		}
	} else {
		c.starting = true
		c.mu.Unlock()
	}
	if ctx.Err() != nil {
		s.err = unreachable(ctx, ctx.Err())
	} else {
		c.mu.Lock()
		all := append([]*start{s}, c.starts...)
		c.starts = nil
		c.mu.Unlock()
		c.startAll(ctx, all)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.starts) == 0 {
		c.starting = false
	} else { // the first of those that came meanwhile takes over
		next := c.starts[0]
		c.starts = c.starts[1:]
		next.lead = true
		close(next.done)
	}
	return s.err
}

// withdraw takes back a start that was not sent; false when it is too late.
func (c *Client) withdraw(s *start) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.starts)
	c.starts = slices.DeleteFunc(c.starts, func(o *start) bool { return o == s })
	return len(c.starts) < n
}

// startAll sends starts and hands out the answers. The first is the caller's own.
func (c *Client) startAll(ctx context.Context, all []*start) {
	body := all[0].body
	if len(all) > 1 {
		body = []byte{'['}
		for i, s := range all {
			if i > 0 {
				body = append(body, ',')
			}
			body = append(body, s.body...)
		}
		body = append(body, ']')
		// The others do not end with the caller.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
	}
	var failed startAnswer
	err := c.call(ctx, opStart, json.RawMessage(body), &failed)
	for i, s := range all {
		s.err = err
		if f, ok := failed[s.id]; ok {
			s.err = f.err()
		}
		if i > 0 {
			close(s.done)
		}
	}
}

// Tasks lists every task of the host.
func (c *Client) Tasks(ctx context.Context) ([]Status, error) {
	var all []Status
	var in any
	if term := berth.TermOf(ctx); term != 0 {
		in = tasksRequest{term, berth.TermProof(ctx)}
	}
	err := c.call(ctx, opTasks, in, &all)
	return all, err
}

// Stop asks a task to end.
func (c *Client) Stop(ctx context.Context, id berth.TaskID, s Stop) error {
	return c.call(ctx, opStop, stopRequest{Task: id, Grace: s.Grace, Cause: s.Cause, Why: s.Why}, nil)
}

// Remove forgets a task that is over.
func (c *Client) Remove(ctx context.Context, id berth.TaskID) error {
	r := removal{id, berth.TermOf(ctx), berth.TermProof(ctx), make(chan error, 1)}
	c.mu.Lock()
	c.removals = append(c.removals, r)
	if len(c.removals) == 1 {
		time.AfterFunc(together, c.removeAll)
	}
	c.mu.Unlock()
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return unreachable(ctx, ctx.Err())
	}
}

// removeAll sends the removals that wait.
func (c *Client) removeAll() {
	c.mu.Lock()
	list := c.removals
	c.removals = nil
	c.mu.Unlock()
	ids := make([]berth.TaskID, len(list))
	term, proof := int64(0), "" // all are of one server, whose latest it is
	for i, r := range list {
		if ids[i] = r.id; r.term >= term {
			term, proof = r.term, r.proof
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var failed removeAnswer
	err := c.call(ctx, opRemove, removeRequest{ids, term, proof}, &failed)
	for _, r := range list {
		if f, ok := failed[r.id]; ok {
			r.done <- f.err()
		} else {
			r.done <- err
		}
	}
}

// Info asks the host who it is.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var i Info
	err := c.call(ctx, opInfo, nil, &i)
	return i, err
}

// Quit ends the host. Its tasks run on.
func (c *Client) Quit(ctx context.Context) error { return c.call(ctx, opQuit, nil, nil) }

// Restart makes the host execute command, the program and hidden command of a newer build, in its
// place. Its tasks run on and are taken up again.
func (c *Client) Restart(ctx context.Context, command []string) error {
	return c.call(ctx, opRestart, restartRequest{command}, nil)
}

// call sends a request and decodes the answer. Every operation may be repeated, so one that meets a
// connection whose host is gone is sent again on a new one.
func (c *Client) call(ctx context.Context, op byte, in, out any) error {
	var body []byte
	switch in := in.(type) {
	case nil:
	case json.RawMessage:
		body = in
	default:
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	for {
		x, kept, err := c.take(ctx)
		if err != nil {
			return unreachable(ctx, err)
		}
		kind, answer, err := x.roundTrip(ctx, op, body)
		if err != nil {
			x.Close()
			if kept && ctx.Err() == nil {
				continue
			}
			return unreachable(ctx, err)
		}
		c.give(x)
		if kind != outOK {
			var f failure
			if err := json.Unmarshal(answer, &f); err != nil {
				return berth.Errorf(berth.Internal, "the runner host's answer: %w", err)
			}
			return f.err()
		}
		if out == nil {
			return nil
		}
		return json.Unmarshal(answer, out)
	}
}

// take is a connection, kept from an earlier call or new.
func (c *Client) take(ctx context.Context) (x *conn, kept bool, err error) {
	c.mu.Lock()
	if n := len(c.idle); n > 0 {
		x, c.idle = c.idle[n-1], c.idle[:n-1]
	}
	c.mu.Unlock()
	if x != nil {
		return x, true, nil
	}
	n, err := c.dial(ctx)
	if err != nil {
		return nil, false, err
	}
	return &conn{Conn: n, r: bufio.NewReaderSize(n, 4<<10)}, false, nil
}

func (c *Client) give(x *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.idle) >= maxIdle {
		x.Close()
		return
	}
	c.idle = append(c.idle, x)
}

func (x *conn) roundTrip(ctx context.Context, op byte, body []byte) (kind byte, answer []byte, err error) {
	stop := context.AfterFunc(ctx, func() { _ = x.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() && err == nil { // the deadline stays on the connection
			err = context.Cause(ctx)
		}
	}()
	x.out = appendFrame(x.out[:0], op, body)
	if _, err := x.Write(x.out); err != nil {
		return 0, nil, err
	}
	return readFrame(x.r)
}

func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return berth.Errorf(berth.Unavailable, "asking the runner host: %w", context.Cause(ctx))
	}
	return &berth.Error{Code: berth.Unavailable, Msg: ErrGone.Error() + ": " + err.Error(), Err: errors.Join(ErrGone, err)}
}
