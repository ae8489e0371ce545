package dialout

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// A relay lets the tasks of a machine that cannot reach the server's address reach it through the
// agent's connection. The server keeps a few requests open; the agent answers one for each
// connection that it accepts, and from then on the request's body and the answer's are the two
// directions of that connection.

const relayPath = "/relay"

// relaysOpen is how many requests wait for a connection. One that is answered is replaced at once,
// so this bounds how many connections can begin within a round trip.
const relaysOpen = 8

// relaysMost is how many connections of a machine's tasks are relayed at once; more wait.
const relaysMost = 256

// relayWait is how long a connection waits for a request to answer: the server may be about to
// connect again.
const relayWait = 10 * time.Second

// RelayTo makes a driver of a machine that this server connects to: away is the error while it is
// not connected, and dial opens connections to the server for its tasks. It is called once, before
// Accept.
func (d *Driver) RelayTo(dial func(context.Context) (net.Conn, error), away error) {
	d.relayTo, d.away = dial, away
}

// Relay passes on what a [ServeRelay] at the other end of c accepts to connections of dial, until c
// or ctx ends. The error is why.
func Relay(ctx context.Context, c net.Conn, dial func(context.Context) (net.Conn, error), log *slog.Logger) error {
	d := &Driver{name: "relay", log: log, pingAfter: pingAfter, pingWait: pingWait, relayTo: dial}
	ended, err := d.Accept(ctx, c)
	if err != nil {
		return err
	}
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return errors.Join(err, d.Close())
}

// ServeRelay accepts connections of tasks from l and passes them on to the [Relay] at the other end
// of c, until c or ctx ends. The error is why.
func ServeRelay(ctx context.Context, l net.Listener, c io.ReadWriteCloser, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &Agent{Log: log}
	a.Relay(ctx, l)
	return a.Serve(ctx, c)
}

// relay keeps requests open until the session ends.
func (d *Driver) relay(s *session) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-s.link.closed
		cancel()
	}()
	busy := make(chan struct{}, relaysMost)
	for range relaysOpen {
		go func() {
			for ctx.Err() == nil {
				busy <- struct{}{}
				if err := d.relayOne(ctx, s, func() { <-busy }); err != nil && ctx.Err() == nil {
					d.log.Debug("a connection of a task was not relayed", "compute", d.name, "err", err)
					select {
					case <-ctx.Done():
					case <-time.After(time.Second):
					}
				}
			}
		}()
	}
}

// relayOne waits for a connection of a task, and returns once it is being served. done is called
// when it has ended.
func (d *Driver) relayOne(ctx context.Context, s *session, done func()) error {
	r, w := io.Pipe()
	ctx, end := context.WithCancel(ctx)
	cancel := func() {
		end()
		done()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent"+relayPath, r)
	if err != nil {
		cancel()
		return err
	}
	res, err := s.conn.RoundTrip(req) //nolint:bodyclose // relayed closes it
	if err != nil {
		cancel()
		return err
	}
	if res.StatusCode != http.StatusOK {
		cancel()
		return readAnswer(res, nil)
	}
	there := &relayed{Reader: res.Body, Writer: w, close: func() {
		w.Close()
		res.Body.Close()
	}}
	here, err := d.relayTo(ctx)
	if err != nil {
		there.Close()
		cancel()
		return err
	}
	go func() {
		defer cancel()
		defer there.Close()
		defer here.Close()
		go func() {
			_, _ = io.Copy(w, here)
			w.Close() // what the server said last is sent before the stream ends
		}()
		_, _ = io.Copy(here, res.Body) // until the task's side ends, which it does once it has heard all
	}()
	return nil
}

// relayed is one side of a connection that is relayed.
type relayed struct {
	io.Reader
	io.Writer
	close func()
}

func (r *relayed) Close() error {
	r.close()
	return nil
}

// join copies between two connections until one of them ends, and closes both.
func join(a, b io.ReadWriteCloser) {
	var both sync.WaitGroup
	both.Go(func() {
		defer a.Close()
		defer b.Close()
		_, _ = io.Copy(a, b)
	})
	both.Go(func() {
		defer a.Close()
		defer b.Close()
		_, _ = io.Copy(b, a)
	})
	both.Wait()
}

// relays are the connections that an agent's relay has accepted and that wait for a request of the
// server.
type relays struct {
	waiting chan net.Conn
}

// Relay accepts connections of tasks from l until ctx ends, and passes each on to the server. It is
// called once, before connections of the server are served.
func (a *Agent) Relay(ctx context.Context, l net.Listener) {
	a.relays = &relays{waiting: make(chan net.Conn)}
	context.AfterFunc(ctx, func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				a.Log.Warn("a connection of a task was not accepted", "err", err)
				time.Sleep(100 * time.Millisecond)
				continue
			}
			go func() {
				timer := time.NewTimer(relayWait)
				defer timer.Stop()
				select {
				case a.relays.waiting <- c:
				case <-timer.C:
					c.Close()
				case <-ctx.Done():
					c.Close()
				}
			}()
		}
	}()
}

// relay answers a request of the server with a connection that a task opened.
func (a *Agent) relay(w http.ResponseWriter, r *http.Request) {
	if a.relays == nil {
		fail(w, berth.Errorf(berth.Unsupported, "this agent relays no connections"))
		return
	}
	var c net.Conn
	select {
	case c = <-a.relays.waiting:
	case <-r.Context().Done():
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

// flushing writes without keeping anything back.
type flushing struct {
	io.Writer
	out *http.ResponseController
}

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	if err == nil {
		err = f.out.Flush()
	}
	return n, err
}
