package dialout

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// Driver runs tasks on the machine whose agent is connected.
type Driver struct {
	name string
	log  *slog.Logger

	// Heartbeats, see pingAfter.
	pingAfter, pingWait time.Duration

	relayTo func(context.Context) (net.Conn, error) // nil when tasks reach the server themselves
	away    error                                   // of calls while nobody is connected

	mu     sync.Mutex
	now    *session // nil while no agent is connected
	closed bool
}

// Open is the driver's [driver.Open].
func Open(c driver.Config) (driver.Driver, error) {
	log := c.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	away := berth.Errorf(berth.Unavailable, "its machine is not connected; `berth agent run` on that machine connects it")
	return &Driver{name: c.Name, log: log, pingAfter: pingAfter, pingWait: pingWait, away: away}, nil
}

// session is one connection of an agent.
type session struct {
	link *link
	conn *http.ClientConn
	done chan error // has the reason once it is over
	once sync.Once

	dialed atomic.Int64 // connections to tasks that are open
}

// end closes the connection for a reason, of which the first one counts.
func (s *session) end(why error) {
	s.once.Do(func() {
		s.done <- why
		_ = s.conn.Close()
		_ = s.link.Close()
	})
}

// Accept is [driver.Acceptor.Accept]. A connection that is there already is closed: the caller has
// made sure that it is the same machine that connects again, and of its connections the older one
// is dead or about to be.
func (d *Driver) Accept(ctx context.Context, c net.Conn) (<-chan error, error) {
	l := newLink(c)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true) // inside the TLS of the agent's connection
	tr := &http.Transport{
		Protocols:          &protocols,
		DisableCompression: true,
		HTTP2:              &http.HTTP2Config{SendPingTimeout: d.pingAfter, PingTimeout: d.pingWait, WriteByteTimeout: d.pingWait},
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return l, nil },
	}
	conn, err := tr.NewClientConn(ctx, "http", "agent:80")
	if err != nil {
		_ = l.Close()
		return nil, berth.Errorf(berth.Unavailable, "the agent's connection: %w", err)
	}
	s := &session{link: l, conn: conn, done: make(chan error, 1)}
	d.mu.Lock()
	old := d.now
	if d.closed {
		d.mu.Unlock()
		s.end(errClosed)
		return nil, errClosed
	}
	d.now = s
	d.mu.Unlock()
	if old != nil {
		old.end(berth.Errorf(berth.Conflict, "the machine has connected again"))
	}
	if d.relayTo != nil {
		d.relay(s)
	}
	go func() { // until the connection is closed, which ends the session
		<-l.closed
		d.mu.Lock()
		if d.now == s {
			d.now = nil
		}
		d.mu.Unlock()
		s.end(berth.Errorf(berth.Unavailable, "the connection was cut"))
	}()
	return s.done, nil
}

var errClosed = berth.Errorf(berth.Unavailable, "the server is shutting down")

// Drop is [driver.Acceptor.Drop]. Tasks run on.
func (d *Driver) Drop(why error) {
	d.mu.Lock()
	s := d.now
	d.now = nil
	d.mu.Unlock()
	if s != nil {
		s.end(why)
	}
}

// Close lets go of the agent. Its tasks run on.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.Drop(errClosed)
	return nil
}

// Probe is [driver.Driver.Probe].
func (d *Driver) Probe(ctx context.Context) (driver.Info, error) {
	var info driver.Info
	err := d.call(ctx, http.MethodGet, "/probe", nil, &info)
	// Whatever the agent's own driver can do on its machine, this is what goes over the connection.
	info.SharedDisk, info.Queues, info.Address, info.MaxNodes = false, false, "", 1
	info.Distributed, info.Places = true, false // on one machine
	info.Watches, info.Scales, info.Execs, info.Logs, info.Gangs, info.Turns = false, false, false, false, false, false
	return info, err
}

// Start is [driver.Driver.Start].
func (d *Driver) Start(ctx context.Context, l berth.Launch) (driver.Handle, error) {
	return handle(l.Task), d.call(ctx, http.MethodPost, "/start", l, nil)
}

// Observe is [driver.Driver.Observe].
func (d *Driver) Observe(ctx context.Context) ([]driver.Observed, error) {
	var all []driver.Observed
	if err := d.call(ctx, http.MethodGet, "/tasks", nil, &all); err != nil {
		return nil, err
	}
	for i := range all {
		o := &all[i]
		o.Handle = handle(o.Task) // ours: an agent's word for it is not used
		o.Why, o.Node = Clean(o.Why, maxText), Clean(o.Node, maxText)
		if o.Exit != nil {
			o.Exit.Reason, o.Exit.Signal, o.Exit.Log = Clean(o.Exit.Reason, maxText), Clean(o.Exit.Signal, 40), Clean(o.Exit.Log, maxText)
		}
	}
	return all, nil
}

// Stop is [driver.Driver.Stop].
func (d *Driver) Stop(ctx context.Context, h driver.Handle, s driver.Stop) error {
	id, err := taskOf(h)
	if err != nil {
		return err
	}
	return d.call(ctx, http.MethodPost, "/stop", stopRequest{Task: id, Grace: s.Grace, Cause: s.Cause, Why: s.Why}, nil)
}

// Remove is [driver.Driver.Remove].
func (d *Driver) Remove(ctx context.Context, h driver.Handle) error {
	id, err := taskOf(h)
	if err != nil {
		return err
	}
	return d.call(ctx, http.MethodPost, "/remove", removeRequest{Task: id}, nil)
}

// call sends a request to the agent that is connected.
func (d *Driver) call(ctx context.Context, method, path string, in, out any) error {
	d.mu.Lock()
	s := d.now
	d.mu.Unlock()
	if s == nil {
		return d.away
	}
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, body)
	if err != nil {
		return err
	}
	if term := berth.TermOf(ctx); term != 0 {
		req.Header.Set(headerTerm, strconv.FormatInt(term, 10))
		req.Header.Set(headerTermProof, berth.TermProof(ctx))
	}
	res, err := s.conn.RoundTrip(req)
	if err != nil {
		return berth.Errorf(berth.Unavailable, "asking its machine: %w", err)
	}
	return readAnswer(res, out)
}

// handle and taskOf are the two ends of a handle: a version and the task's id.
func handle(id berth.TaskID) driver.Handle { return driver.Handle("dial1:" + string(id)) }

func taskOf(h driver.Handle) (berth.TaskID, error) {
	id, ok := strings.CutPrefix(string(h), "dial1:")
	if !ok {
		return "", berth.Errorf(berth.Invalid, "%q is not a handle of the dialout driver", h)
	}
	return berth.TaskID(id), nil
}
