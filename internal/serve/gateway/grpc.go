package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// tunnelHeader asks what stands before a server of the user's own to pass bytes on from then on.
const tunnelHeader = "X-Berth-Tunnel"

// slotKey is the worker that a connection is opened for.
type slotKey struct{}

// errNoHTTP2 is of a replica that does not speak HTTP/2.
var errNoHTTP2 = errors.New("the replica does not speak HTTP/2")

// isGRPC says whether a request is one of gRPC, which needs HTTP/2 all the way.
func (x *exchange) isGRPC() bool { return isGRPC(x.r) }

func isGRPC(r *http.Request) bool {
	return r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// grpcCodes are gRPC's codes for statuses of this gateway.
var grpcCodes = map[int]int{
	http.StatusBadRequest: 3, http.StatusUnauthorized: 16, http.StatusForbidden: 7, http.StatusNotFound: 5, http.StatusRequestTimeout: 4,
	http.StatusTooManyRequests: 8, http.StatusNotImplemented: 12, http.StatusBadGateway: 14, http.StatusServiceUnavailable: 14,
}

// unknownCode is gRPC's code for everything else.
const unknownCode = 2

// refuseGRPC answers in the form that clients of gRPC can read: a header that is the trailer too.
func refuseGRPC(w http.ResponseWriter, status int, message string) {
	code, ok := grpcCodes[status]
	if !ok {
		code = unknownCode
	}
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", strconv.Itoa(code))
	h.Set("Grpc-Message", grpcMessage(message))
	w.WriteHeader(http.StatusOK)
}

// grpcMessage is a text as the trailer can hold it.
func grpcMessage(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// newHTTP2 is what sends requests by HTTP/2, without TLS, to servers of users' own.
func (g *Gateway) newHTTP2() http.RoundTripper {
	p := &http.Protocols{}
	p.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: p, DialContext: g.tunnel, DisableCompression: true, IdleConnTimeout: idleTime, MaxResponseHeaderBytes: maxHead}
}

// tunnel opens a connection to the server that a replica runs.
func (g *Gateway) tunnel(ctx context.Context, _, _ string) (net.Conn, error) {
	s, ok := ctx.Value(slotKey{}).(*slot)
	if !ok {
		return nil, errProof
	}
	c, err := g.dial(ctx, s, 0)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: worker\r\n"+secretHeader+": "+s.secret+"\r\n"+tunnelHeader+": h2c\r\n\r\n"); err != nil {
		c.Close()
		return nil, err
	}
	a, err := readAnswer(c.in, http.MethodGet)
	if err == nil && a.status != http.StatusSwitchingProtocols {
		err = errNoHTTP2
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return &tunneled{c, c.in}, nil
}

// tunneled is a connection of which a part was read already.
type tunneled struct {
	net.Conn
	in *bufio.Reader
}

func (t *tunneled) Read(b []byte) (int, error) { return t.in.Read(b) }

// sendGRPC has one worker answer by HTTP/2. Both bodies are streams, and the answer has trailers.
func (x *exchange) sendGRPC(ctx context.Context, s *slot) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	target := &url.URL{Scheme: "http", Host: s.address, RawPath: x.path, RawQuery: escaped(x.r.URL.RawQuery)}
	target.Path, _ = url.PathUnescape(x.path)
	late := time.AfterFunc(time.Hour, func() { cancel(errTimeout) })
	late.Stop()
	defer late.Stop()
	out := (&http.Request{
		Method: x.r.Method, URL: target, Host: x.host(), Header: http.Header{"Te": {"trailers"}}, ContentLength: -1,
		Body: &ending{x.r.Body, func() { late.Reset(x.d.timeout) }},
	}).WithContext(context.WithValue(ctx, slotKey{}, s))
	x.visit(func(name, value string) { out.Header.Add(name, value) })
	resp, err := x.g.http2.RoundTrip(out)
	if err != nil {
		x.g.release(x.d.pool, s, err)
		if cause := context.Cause(ctx); errors.Is(cause, errTimeout) {
			return errTimeout
		}
		return err
	}
	late.Stop()
	defer x.d.pool.give(s)
	defer resp.Body.Close()
	a := &answer{status: resp.StatusCode}
	for name, values := range resp.Header {
		for _, v := range values {
			if !hopByHop(name, nil) {
				a.fields = append(a.fields, field{name, v})
			}
		}
	}
	x.begin(a)
	if resp.ContentLength == 0 && resp.Header.Get("Grpc-Status") != "" {
		return nil // the header is the trailer too, and nothing may follow
	}
	if err := http.NewResponseController(x.w).Flush(); err != nil {
		return errBroken
	}
	if err := x.copy(resp.Body, true); err != nil {
		return err
	}
	for name, values := range resp.Trailer {
		for _, v := range values {
			x.w.Header().Add(http.TrailerPrefix+name, v)
		}
	}
	return nil
}

// ending is a body whose end is told of.
type ending struct {
	io.ReadCloser
	ended func()
}

func (e *ending) Read(b []byte) (int, error) {
	n, err := e.ReadCloser.Read(b)
	if errors.Is(err, io.EOF) {
		e.ended()
	}
	return n, err
}

// switched passes bytes on in both directions, once a worker has changed to the protocol that the
// request asked for.
func (x *exchange) switched(c *conn, a *answer) error {
	if x.upgrade == "" || !strings.EqualFold(a.upgrade, x.upgrade) {
		return errAnswer
	}
	socket, client, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		return err
	}
	defer socket.Close()
	x.status = http.StatusSwitchingProtocols
	head := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + a.upgrade + "\r\nX-Request-Id: " + x.id + "\r\n" + berth.DeploymentHeader + ": " + x.d.name + "\r\n"
	for _, f := range a.fields {
		if f.name != "Set-Cookie" && f.name != "Content-Length" && !private(f.name) {
			head += f.name + ": " + f.value + "\r\n"
		}
	}
	if _, err := io.WriteString(socket, head+"\r\n"); err != nil {
		return errBroken
	}
	if err := errors.Join(c.SetDeadline(time.Time{}), socket.SetDeadline(time.Time{})); err != nil || x.r.Context().Err() != nil {
		return errBroken
	}
	ended := make(chan struct{}, 2)
	pass := func(to io.Writer, from io.Reader) {
		io.Copy(to, from) //nolint:errcheck // an end is an end
		ended <- struct{}{}
	}
	go pass(c, client)
	go pass(socket, c.in)
	<-ended
	c.Close() // both end
	socket.Close()
	<-ended
	return nil
}
