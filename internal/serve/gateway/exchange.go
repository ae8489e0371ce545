package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/serve"
	"github.com/berthml/berth/internal/serve/collect"
)

// exchange is one request on its way.
type exchange struct {
	g       *Gateway
	d       *deployment
	w       http.ResponseWriter
	r       *http.Request
	asked   string // the path below the endpoint, escaped
	path    string // what a worker is asked for
	id      string
	upgrade string          // the protocol that it asks to change to
	body    []byte          // of a request that can be sent again; nil where it cannot
	again   bool            // it can
	status  int             // of the answer, once there is one
	kept    *collect.Sample // what is kept of it; nil where nothing is

	stop    func() bool // has the end of the request not end the connection to the worker any more
	sending chan error  // of a body that is still being sent
	taken   atomic.Bool // all of the body was read from the client
}

// errTimeout ends a request to which no answer came in time.
var errTimeout = errors.New("no answer in time")

// errBroken is of an answer that broke off after a part of it had been passed on.
var errBroken = errors.New("the answer of the replica broke off")

// wakeTime is how long a request waits for a replica of a deployment that has none that answers.
const wakeTime = 2 * time.Minute

// maxAttempts is how many workers are tried.
const maxAttempts = 5

// run has a worker answer the request.
func (x *exchange) run() error {
	ctx := x.r.Context()
	wait, most := x.d.queueWait, time.Duration(0)
	if wait == 0 {
		wait, most = x.d.timeout, max(x.d.timeout, wakeTime)
	}
	var tried []string
	for attempt := 1; ; attempt++ {
		s, err := x.d.pool.take(ctx, wait, most, tried)
		if err != nil {
			return err
		}
		err = x.send(ctx, s)
		switch {
		case err == nil || errors.Is(err, errBroken) || errors.Is(err, errTimeout) || errors.Is(err, errBody) || ctx.Err() != nil:
			return err
		case attempt == maxAttempts || !untouched(err) && !(x.again && (s.pure || x.d.pure)):
			return err
		}
		tried = append(tried, s.address)
	}
}

// untouched says whether the worker cannot have begun the request: nobody answered the call.
func untouched(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// send has one worker answer, which is returned to its pool when its answer has been read.
func (x *exchange) send(ctx context.Context, s *slot) error {
	if x.isGRPC() {
		return x.sendGRPC(ctx, s)
	}
	c, err := x.g.connect(ctx, s, x.d.patience, x.d.timeout)
	if err != nil {
		x.g.release(x.d.pool, s, err)
		return err
	}
	x.stop = context.AfterFunc(ctx, func() { _ = c.SetDeadline(past) })
	a, err := x.ask(c, s)
	whole := false
	if err == nil {
		whole, err = x.pass(ctx, c, s, a)
	}
	if x.sending != nil {
		c.Close()
		if serr := x.endSending(); err != nil && isSilent(serr) {
			err = serr
		}
	}
	if whole {
		return err
	}
	x.stop()
	c.Close()
	x.g.release(x.d.pool, s, nil)
	if errors.Is(err, errTimeout) || ctx.Err() == nil && isTimeout(err) && !errors.Is(err, errBody) && !errors.Is(err, errBroken) {
		return errTimeout
	}
	return err
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// ask sends the request and reads the header of the answer.
func (x *exchange) ask(c *conn, s *slot) (*answer, error) {
	if err := x.write(c, s.secret); err != nil {
		return nil, err
	}
	if x.again || x.upgrade != "" || x.r.ContentLength == 0 {
		return readAnswer(c.in, x.r.Method)
	}
	return x.askStreaming(c)
}

// askStreaming sends a body as it comes, and reads the header of the answer meanwhile: a worker may
// answer before it has all of it.
func (x *exchange) askStreaming(c *conn) (*answer, error) {
	_ = http.NewResponseController(x.w).EnableFullDuplex() // HTTP/2 has it anyway
	if err := c.SetReadDeadline(time.Time{}); err != nil { // the time of the answer begins when all was sent
		return nil, err
	}
	x.sending = make(chan error, 1)
	var mu sync.Mutex // held while the deadline is set for the header of the answer
	answered := false
	go func(sent chan<- error) {
		err := x.stream(&paced{c})
		mu.Lock()
		defer mu.Unlock()
		switch {
		case answered:
		case err == nil:
			err = c.SetReadDeadline(time.Now().Add(x.d.timeout))
		case errors.Is(err, errBody):
			_ = c.SetReadDeadline(past)
		}
		sent <- err
	}(x.sending)
	a, err := readAnswer(c.in, x.r.Method)
	mu.Lock()
	answered = true
	mu.Unlock()
	select {
	case serr := <-x.sending:
		x.sending = nil
		if err != nil && errors.Is(serr, errBody) {
			err = serr
		}
		if serr != nil && err == nil {
			a.last = true
		}
	default: // it answered early: what is left of the body is not for it
		if err == nil {
			a.last = true
		}
	}
	return a, err
}

// endSending ends what sends the body of a request to a connection that is closed. It returns the
// error of what ended without it.
func (x *exchange) endSending() error {
	if x.taken.Load() { // it waits for nobody
		err := <-x.sending
		x.sending = nil
		return err
	}
	if x.r.Context().Err() != nil { // as when a read failed, which is about to be told
		select {
		case err := <-x.sending:
			x.sending = nil
			return err
		case <-time.After(time.Second):
		}
	}
	x.endClient()
	client := http.NewResponseController(x.w)
	for {
		_ = client.SetReadDeadline(past) // of which the next read may have set another
		select {
		case <-x.sending:
			x.sending = nil
			return nil
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// endClient has the client's connection end with the answer: a part of the request's body is not
// going to be read, so that the next request would not be found on it.
func (x *exchange) endClient() {
	if x.r.ProtoMajor == 1 {
		x.w.Header().Set("Connection", "close")
	}
}

// paced gives a worker up that does not take the body of a request.
type paced struct{ *conn }

// takeTime is how long the other end may take nothing of what is sent to it.
const takeTime = time.Minute

func (p *paced) Write(b []byte) (int, error) {
	if err := p.SetWriteDeadline(time.Now().Add(takeTime)); err != nil {
		return 0, err
	}
	return p.Conn.Write(b)
}

// release returns a worker whose request was broken off. It may be at work on it still: it gets the
// next one when it answers again.
func (g *Gateway) release(p *pool, s *slot, err error) {
	if untouched(err) {
		p.setDown(s, true)
	}
	go func() {
		if untouched(err) {
			time.Sleep(100 * time.Millisecond) // it is gone, as the loop will notice; or it starts again
		}
		ctx, cancel := context.WithTimeout(context.Background(), recoverTime)
		defer cancel()
		for ctx.Err() == nil && !p.isGone(s) {
			if c, err := g.dial(ctx, s, 0); err == nil {
				s.keep(c)
				p.setDown(s, false)
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		p.give(s)
	}()
}

// recoverTime is how long a worker is waited for that does not answer.
const recoverTime = 5 * time.Minute

// mirror sends a copy of a request to the deployment that is tried out, and drops its answer.
func (x *exchange) mirror(e *endpoint) {
	if len(e.mirror) == 0 || !x.again || x.r.Header.Get(berth.DeploymentHeader) != "" {
		return
	}
	m := e.mirror[0]
	d := e.deployments[m.name]
	if d == nil || d == x.d || rand.IntN(100) >= m.percent || !d.pool.ready() { //nolint:gosec // not a secret
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(x.r.Context()), 2*d.timeout+time.Second)
	copied := &exchange{g: x.g, d: d, w: &unread{http.Header{}}, r: x.r.Clone(ctx), path: d.pathOf(x.asked), id: berth.NewGUID(), body: x.body, again: true}
	go func() {
		defer stop()
		begun := time.Now()
		if err := copied.run(); err != nil && copied.status == 0 {
			copied.status = http.StatusBadGateway
		}
		d.pool.stats.done(time.Now(), copied.status, time.Since(begun))
	}()
}

// unread is a client that is not there.
type unread struct{ header http.Header }

func (u *unread) Header() http.Header         { return u.header }
func (u *unread) WriteHeader(int)             {}
func (u *unread) Write(b []byte) (int, error) { return len(b), nil }

// begin writes the header of the answer to the client.
func (x *exchange) begin(a *answer) {
	h := x.w.Header()
	values := make([]string, len(a.fields))
	own := 0
	for i, f := range a.fields {
		switch f.name {
		// It comes from the server's own address, and may not act there as a page of the server.
		case "Set-Cookie", "Clear-Site-Data", "Service-Worker-Allowed", "Content-Security-Policy", "X-Request-Id", "Strict-Transport-Security", serve.ProofHeader, berth.DeploymentHeader:
			continue
		}
		if slices.ContainsFunc(a.fields[:i], func(g field) bool { return g.name == f.name }) {
			h[f.name] = append(h[f.name], f.value)
			continue
		}
		values[own] = f.value
		h[f.name] = values[own : own+1 : own+1]
		own++
	}
	h["Content-Security-Policy"] = sandbox
	h["X-Request-Id"] = []string{x.id}
	h[berth.DeploymentHeader] = []string{x.d.name}
	if x.sending != nil && !x.taken.Load() {
		x.endClient()
	}
	x.status = a.status
	status := a.status
	if status >= http.StatusBadRequest {
		h.Set("Ms-Azureml-Model-Error-Statuscode", strconv.Itoa(status))
		h.Set("Ms-Azureml-Model-Error-Reason", "model_error")
		x.status = http.StatusFailedDependency
	}
	x.w.WriteHeader(x.status)
}

var sandbox = []string{"sandbox"}

// pass passes an answer on. whole says that all of it was read, and the worker returned.
func (x *exchange) pass(ctx context.Context, c *conn, s *slot, a *answer) (whole bool, err error) {
	if a.status == http.StatusSwitchingProtocols {
		return false, x.switched(c, a)
	}
	if a.length >= 0 && a.length <= maxBuffered && !a.chunked {
		return x.passSmall(ctx, c, s, a)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return false, err
	}
	if ctx.Err() != nil { // whose deadline was overwritten
		return false, ctx.Err()
	}
	x.begin(a)
	if err := x.copy(a.body, a.length < 0); err != nil {
		return false, err
	}
	if a.trailer != nil {
		fields, err := a.trailer()
		if err != nil {
			return false, errBroken
		}
		for _, f := range fields {
			x.w.Header().Add(http.TrailerPrefix+f.name, f.value)
		}
	}
	x.giveBack(c, s, a)
	return true, nil
}

// passSmall reads an answer before any of it is passed on: a client that reads slowly does not hold
// the worker.
func (x *exchange) passSmall(ctx context.Context, c *conn, s *slot, a *answer) (bool, error) {
	var body []byte
	if a.length > 0 {
		buf := copyBufs.Get().(*[]byte) //nolint:forcetypeassert // nothing else is in it
		defer copyBufs.Put(buf)
		if body = *buf; int64(len(body)) < a.length {
			body = make([]byte, a.length)
		}
		body = body[:a.length]
		if int64(c.in.Buffered()) < a.length {
			if err := c.SetReadDeadline(time.Now().Add(max(takeTime, x.d.timeout))); err != nil {
				return false, err
			}
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
		}
		if _, err := io.ReadFull(c.in, body); err != nil {
			return false, err
		}
	}
	x.giveBack(c, s, a)
	if x.kept != nil {
		x.kept.Response, x.kept.ResponseType, x.kept.Status = bytes.Clone(body), a.get("Content-Type"), a.status
	}
	body = x.errorForAzure(a, body)
	x.begin(a)
	if len(body) > 0 {
		_, err := x.w.Write(body)
		if err != nil {
			return true, errBroken
		}
	}
	return true, nil
}

// giveBack returns a worker that has answered.
func (x *exchange) giveBack(c *conn, s *slot, a *answer) {
	if free := x.stop(); a.last || !free { // else its deadline may be set any moment
		c.Close()
	} else {
		s.keep(c)
	}
	x.d.pool.give(s)
}

// copy passes a body on; flush has every part of it sent at once.
func (x *exchange) copy(from io.Reader, flush bool) error {
	buf := copyBufs.Get().(*[]byte) //nolint:forcetypeassert // nothing else is in it
	defer copyBufs.Put(buf)
	out := http.NewResponseController(x.w)
	for {
		n, err := from.Read(*buf)
		if n > 0 {
			_ = out.SetWriteDeadline(time.Now().Add(takeTime)) // what is not a connection has none
			if _, werr := x.w.Write((*buf)[:n]); werr != nil {
				return errBroken
			}
			if flush {
				if ferr := out.Flush(); ferr != nil && !errors.Is(ferr, http.ErrNotSupported) {
					return errBroken
				}
			}
		}
		if errors.Is(err, io.EOF) {
			_ = out.SetWriteDeadline(time.Time{})
			return nil
		}
		if err != nil {
			return errBroken
		}
	}
}
