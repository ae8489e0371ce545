package dialout

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// The server reaches a port of a task by a request whose body and whose answer's are the two
// directions of a connection, which the agent opens on its machine.

const (
	dialPath   = "/dial"
	taskParam  = "task"
	portParam  = "port"
	maxDialing = 500 // connections to tasks of a machine at once; calls need room beside them
)

// Dial is [driver.Dialer.Dial]: through the agent's connection.
func (d *Driver) Dial(ctx context.Context, h driver.Handle, port int) (net.Conn, error) {
	id, err := taskOf(h)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	s := d.now
	d.mu.Unlock()
	if s == nil {
		return nil, d.away
	}
	if s.dialed.Add(1) > maxDialing {
		s.dialed.Add(-1)
		return nil, berth.Errorf(berth.Unavailable, "%d connections to tasks of the machine are open already", maxDialing)
	}
	// The connection outlives the call, and ends with the session.
	open, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := func() {
		cancel()
		s.dialed.Add(-1)
	}
	stop := context.AfterFunc(ctx, cancel)
	r, w := io.Pipe()
	query := url.Values{taskParam: {string(id)}, portParam: {strconv.Itoa(port)}}
	req, err := http.NewRequestWithContext(open, http.MethodPost, "http://agent"+dialPath+"?"+query.Encode(), r)
	if err != nil {
		ended()
		return nil, err
	}
	res, err := s.conn.RoundTrip(req) //nolint:bodyclose // relayed closes it
	if err != nil {
		ended()
		return nil, berth.Errorf(berth.Unavailable, "asking its machine: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		ended()
		if res.StatusCode == http.StatusNotFound && res.Header.Get("Content-Type") != "application/json" {
			res.Body.Close()
			return nil, berth.Errorf(berth.Unsupported, "the agent on its machine is older than this server and reaches no ports of tasks: update it")
		}
		return nil, readAnswer(res, nil)
	}
	if !stop() {
		res.Body.Close()
		ended()
		return nil, ctx.Err()
	}
	// A pipe has the deadlines that the streams of HTTP/2 have not.
	here, there := net.Pipe()
	c := &dialed{Conn: here}
	go func() {
		defer ended()
		defer c.over.Store(true)
		join(there, &relayed{Reader: res.Body, Writer: w, close: func() {
			w.Close()
			res.Body.Close()
		}})
	}()
	return c, nil
}

// dialed is a connection to a port of a task.
type dialed struct {
	net.Conn
	over atomic.Bool
}

// Ended says whether the other end has closed the connection.
func (c *dialed) Ended() bool { return c.over.Load() }

// dial answers a request of the server with a connection to a port of a task.
func (a *Agent) dial(w http.ResponseWriter, r *http.Request) {
	port, err := strconv.Atoi(r.URL.Query().Get(portParam))
	if err != nil || port < 1 || port > 65535 {
		fail(w, berth.Errorf(berth.Invalid, "%q is not a port", r.URL.Query().Get(portParam)))
		return
	}
	d, ok := a.Driver.(driver.Dialer)
	if !ok {
		fail(w, berth.Errorf(berth.Unsupported, "this agent reaches no ports of tasks"))
		return
	}
	var c net.Conn
	err = a.about(r.Context(), berth.TaskID(r.URL.Query().Get(taskParam)), func(h driver.Handle) (err error) {
		c, err = d.Dial(r.Context(), h, port)
		return err
	})
	if err == nil && c == nil {
		err = berth.Errorf(berth.Unavailable, "the task is not on this machine")
	}
	if err != nil {
		fail(w, err)
		return
	}
	out := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	if out.Flush() != nil {
		c.Close()
		return
	}
	join(c, &relayed{Reader: r.Body, Writer: flushing{w, out}, close: func() { r.Body.Close() }})
}
