package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// exchange is one request on its way.
type exchange struct {
	g      *Gateway
	d      *deployment
	path   string // below the endpoint, escaped
	id     string
	body   []byte // of a request that can be sent again; nil where it cannot
	again  bool   // it can
	cancel context.CancelCauseFunc
	status int // of the answer, once there is one
}

type exchangeKey struct{}

// slotKey is the worker that a connection is opened for.
type slotKey struct{}

// errTimeout ends a request to which no answer came in time.
var errTimeout = errors.New("no answer in time")

// maxBuffered is how large a body may be to be kept until it is answered.
const maxBuffered = 1 << 20

// buffer keeps a small body, so that it can be sent to another worker.
func (x *exchange) buffer(r *http.Request) error {
	if r.Header.Get("Upgrade") != "" || r.ContentLength < 0 || r.ContentLength > maxBuffered {
		return nil
	}
	x.again = true
	if r.ContentLength == 0 {
		r.Body = http.NoBody
		return nil
	}
	x.body = make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, x.body); err != nil {
		return err
	}
	x.rewind(r)
	return nil
}

// rewind makes the body of a request readable from its beginning.
func (x *exchange) rewind(r *http.Request) {
	if x.body == nil {
		return
	}
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(x.body)), nil }
	r.Body = io.NopCloser(bytes.NewReader(x.body))
}

// mirror sends a copy of a request to the deployment that is tried out, and drops its answer.
func (x *exchange) mirror(e *endpoint, r *http.Request) {
	if len(e.mirror) == 0 || !x.again || r.Header.Get(berth.DeploymentHeader) != "" {
		return
	}
	m := e.mirror[0]
	d := e.deployments[m.name]
	if d == nil || d == x.d || rand.IntN(100) >= m.percent || !d.pool.ready() { //nolint:gosec // not a secret
		return
	}
	copied := &exchange{g: x.g, d: d, path: x.path, id: berth.NewGUID(), body: x.body, again: true}
	within, stop := context.WithTimeout(context.WithoutCancel(r.Context()), 2*d.timeout+time.Second)
	ctx, cancel := context.WithCancelCause(context.WithValue(within, exchangeKey{}, copied))
	copied.cancel = cancel
	out := r.Clone(ctx)
	copied.rewind(out)
	out.RequestURI = ""
	out.URL = &url.URL{Scheme: "http", Host: "worker", RawQuery: r.URL.RawQuery, RawPath: x.path}
	out.URL.Path, _ = url.PathUnescape(x.path)
	copied.outgoing(out.Header)
	go func() {
		defer stop()
		defer cancel(nil)
		begun := time.Now()
		resp, err := forwarder{x.g}.RoundTrip(out)
		copied.status = http.StatusBadGateway
		if err == nil {
			defer resp.Body.Close()
			discard(resp.Body)
			copied.status = resp.StatusCode
		}
		d.pool.stats.done(time.Now(), copied.status, time.Since(begun))
	}()
}

// forwarder takes a worker for a request, sends it there and returns the worker when the answer was
// read.
type forwarder struct{ g *Gateway }

// wakeTime is how long a request waits for the first replica of a deployment that has none.
const wakeTime = 2 * time.Minute

// maxAttempts is how many workers are tried.
const maxAttempts = 5

// RoundTrip sends a request to a worker that is free.
func (f forwarder) RoundTrip(r *http.Request) (*http.Response, error) {
	x := r.Context().Value(exchangeKey{}).(*exchange) //nolint:forcetypeassert // set by those who call
	wait := x.d.queueWait
	if wait == 0 {
		wait = x.d.timeout
		if x.d.follows && !x.d.pool.ready() {
			wait = max(wait, wakeTime) // a replica has to start first
		}
	}
	var tried []string
	for attempt := 1; ; attempt++ {
		s, err := x.d.pool.take(r.Context(), wait, tried)
		if err != nil {
			return nil, err
		}
		resp, err := f.send(x, s, r)
		if err == nil {
			return resp, nil
		}
		if r.Context().Err() != nil || attempt == maxAttempts || !x.again || !(untouched(err) || s.pure) {
			return nil, err
		}
		tried = append(tried, s.address)
	}
}

// untouched says whether the worker cannot have begun the request: nobody answered the call.
func untouched(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// send sends a request to one worker, which is returned to its pool when the answer has been read.
func (f forwarder) send(x *exchange, s *slot, r *http.Request) (*http.Response, error) {
	ctx := context.WithValue(r.Context(), slotKey{}, s)
	limit, late := x.d.timeout, (*time.Timer)(nil)
	if x.d.patience > 0 { // the worker may have to start, which is not a part of the request
		limit += x.d.patience
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { late.Reset(x.d.timeout) }})
	}
	out := r.Clone(ctx)
	x.rewind(out)
	out.URL.Host, out.Host = s.address, r.Host
	out.Header.Set(secretHeader, f.g.o.Secret(s.job))
	late = time.AfterFunc(limit, func() { x.cancel(errTimeout) })
	resp, err := f.g.client.RoundTrip(out)
	late.Stop()
	if err != nil {
		f.recover(x, s, err)
		return nil, err
	}
	done := func(whole bool) {
		if whole {
			x.d.pool.give(s)
			return
		}
		f.recover(x, s, nil)
	}
	if conn, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = &upgraded{conn, sync.OnceFunc(func() { done(false) })}
		return resp, nil
	}
	resp.Body = &answer{ReadCloser: resp.Body, done: done}
	return resp, nil
}

// secretHeader shows a worker that it is the gateway which calls.
const secretHeader = "X-Berth-Replica"

// recover returns a worker whose request was broken off. It may be at work on it still: it gets the
// next one when it answers again.
func (f forwarder) recover(x *exchange, s *slot, err error) {
	go func() {
		if untouched(err) {
			time.Sleep(100 * time.Millisecond) // it is gone, as the loop will notice; or it starts again
		}
		ctx, cancel := context.WithTimeout(context.Background(), recoverTime)
		defer cancel()
		for ctx.Err() == nil && !x.d.pool.isGone(s) && !f.alive(ctx, s) {
			time.Sleep(100 * time.Millisecond)
		}
		x.d.pool.give(s)
	}()
}

// recoverTime is how long a worker is waited for that does not answer.
const recoverTime = 5 * time.Minute

// alive asks a worker whether it answers.
func (f forwarder) alive(ctx context.Context, s *slot) bool {
	req, err := http.NewRequestWithContext(context.WithValue(ctx, slotKey{}, s), http.MethodGet, "http://"+s.address+"/", http.NoBody)
	if err != nil {
		return true
	}
	resp, err := f.g.client.RoundTrip(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	discard(resp.Body)
	return true
}

// answer is the body of an answer. The worker is free when it has been read to its end.
type answer struct {
	io.ReadCloser
	done func(whole bool)
	once sync.Once
}

func (a *answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		a.once.Do(func() { a.done(true) })
	}
	return n, err
}

func (a *answer) Close() error {
	err := a.ReadCloser.Close()
	a.once.Do(func() { a.done(false) })
	return err
}

// upgraded is a connection that has become another protocol's.
type upgraded struct {
	io.ReadWriteCloser
	done func()
}

func (u *upgraded) Close() error {
	err := u.ReadWriteCloser.Close()
	u.done()
	return err
}
