package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/serve"
)

// secretHeader shows a worker that it is the gateway which calls.
const secretHeader = "X-Berth-Replica"

// maxBuffered is how large a body may be to be kept until it is answered.
const maxBuffered = 1 << 20

// texts are buffers that requests are put together in.
var texts = sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}

// buffer keeps a small body, so that it can be sent to another worker.
func (x *exchange) buffer() error {
	r := x.r
	if x.upgrade != "" || x.isGRPC() || r.ContentLength < 0 || r.ContentLength > maxBuffered {
		return nil
	}
	x.again = true
	if r.ContentLength == 0 {
		return nil
	}
	x.body = make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, x.body)
	return err
}

// protocol is what a request asks to change to; "" where it does not.
func protocol(r *http.Request) string {
	if r.ProtoMajor == 1 && r.ProtoMinor == 1 && r.ContentLength == 0 {
		for _, v := range r.Header["Connection"] {
			for word := range strings.SplitSeq(v, ",") {
				if strings.EqualFold(strings.TrimSpace(word), "upgrade") {
					return r.Header.Get("Upgrade")
				}
			}
		}
	}
	return ""
}

// private are headers that are between the client and the gateway, or between the gateway and a
// worker.
func private(name string) bool {
	switch name {
	case "Authorization", "Cookie", berth.DeploymentHeader, secretHeader, serve.NonceHeader, tunnelHeader, "X-Request-Id",
		"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Content-Length", "Host", "Expect":
		return true
	}
	return false
}

// visit calls f with the headers that a worker gets.
func (x *exchange) visit(f func(name, value string)) {
	var named []string
	for _, v := range x.r.Header["Connection"] {
		for word := range strings.SplitSeq(v, ",") {
			named = append(named, textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(word)))
		}
	}
	for name, values := range x.r.Header {
		if private(name) || hopByHop(name, named) {
			continue
		}
		for _, v := range values {
			f(name, v)
		}
	}
	host, _, err := net.SplitHostPort(x.r.RemoteAddr)
	if err != nil {
		host = x.r.RemoteAddr
	}
	scheme := "http"
	if x.r.TLS != nil {
		scheme = "https"
	}
	f("X-Request-Id", x.id)
	if isText(host) && host != "" {
		f("X-Forwarded-For", host)
	}
	f("X-Forwarded-Host", x.host())
	f("X-Forwarded-Proto", scheme)
}

// host is what the client called, as far as it is a name.
func (x *exchange) host() string {
	for i := range len(x.r.Host) {
		if c := x.r.Host[i]; c <= ' ' || c >= 0x7f {
			return "worker"
		}
	}
	return x.r.Host
}

// target is the path and the query that a worker is asked for.
func (x *exchange) target() string {
	if x.r.URL.RawQuery == "" && !x.r.URL.ForceQuery {
		return x.path
	}
	return x.path + "?" + escaped(x.r.URL.RawQuery)
}

// escaped is a query as a line of a request can hold it: HTTP/2 lets others through.
func escaped(query string) string {
	for i := range len(query) {
		if c := query[i]; c <= ' ' || c >= 0x7f {
			var b strings.Builder
			for j := range len(query) {
				if c := query[j]; c <= ' ' || c >= 0x7f {
					fmt.Fprintf(&b, "%%%02X", c)
				} else {
					b.WriteByte(c)
				}
			}
			return b.String()
		}
	}
	return query
}

// head appends the header of the request for a worker to b.
func (x *exchange) head(b []byte, secret string) []byte {
	b = append(b, x.r.Method...)
	b = append(b, ' ')
	b = append(b, x.target()...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, x.host()...)
	b = append(b, "\r\n"+secretHeader+": "...)
	b = append(b, secret...)
	b = append(b, "\r\n"...)
	x.visit(func(name, value string) {
		b = append(b, name...)
		b = append(b, ": "...)
		b = append(b, value...)
		b = append(b, "\r\n"...)
	})
	switch {
	case x.upgrade != "":
		b = append(b, "Connection: Upgrade\r\nUpgrade: "...)
		b = append(b, x.upgrade...)
		b = append(b, "\r\n"...)
	case x.r.ContentLength < 0:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case x.r.ContentLength > 0 || x.r.Method == http.MethodPost || x.r.Method == http.MethodPut || x.r.Method == http.MethodPatch:
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, x.r.ContentLength, 10)
		b = append(b, "\r\n"...)
	}
	return append(b, "\r\n"...)
}

// smallBody is how large a body may be to be copied behind the header, and sent with it at once.
const smallBody = 32 << 10

// write sends a request to a worker, but not a body that is streamed.
func (x *exchange) write(c *conn, secret string) error {
	buf := texts.Get().(*[]byte) //nolint:forcetypeassert // nothing else is in it
	defer texts.Put(buf)
	b := x.head((*buf)[:0], secret)
	rest := x.body
	if len(rest) <= smallBody {
		b, rest = append(b, rest...), nil
	}
	*buf = b[:0]
	_, err := c.Write(b)
	if err == nil && len(rest) > 0 {
		_, err = c.Write(rest)
	}
	return err
}

// copyBufs are buffers that bodies are copied with.
var copyBufs = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// errBody wraps what went wrong with the body that a client sends.
var errBody = errors.New("the body of the request could not be read")

// isSilent says whether a request failed because nothing more of its body came.
func isSilent(err error) bool { return errors.Is(err, errBody) && isTimeout(err) }

// stream sends the body of a request to a worker as it comes. A client of which nothing comes for
// takeTime is given up, since it holds the worker.
func (x *exchange) stream(to io.Writer) error {
	buf := copyBufs.Get().(*[]byte) //nolint:forcetypeassert // as above
	defer copyBufs.Put(buf)
	chunked := x.r.ContentLength < 0
	left := x.r.ContentLength
	client := http.NewResponseController(x.w)
	for {
		_ = client.SetReadDeadline(time.Now().Add(takeTime)) // what is not a connection has none
		n, err := x.r.Body.Read(*buf)
		if errors.Is(err, io.EOF) {
			_ = client.SetReadDeadline(time.Time{}) // the answer may take longer
			x.taken.Store(true)
		}
		if n > 0 {
			if !chunked && int64(n) > left {
				return errBody
			}
			left -= int64(n)
			if werr := writeChunk(to, (*buf)[:n], chunked); werr != nil {
				return werr
			}
		}
		switch {
		case errors.Is(err, io.EOF) && !chunked && left > 0:
			return errBody
		case errors.Is(err, io.EOF) && chunked:
			return x.endChunks(to)
		case errors.Is(err, io.EOF):
			return nil
		case isTimeout(err):
			return fmt.Errorf("%w: nothing of it came for %v: %w", errBody, takeTime, err)
		case err != nil:
			return fmt.Errorf("%w: %w", errBody, err)
		}
	}
}

func writeChunk(to io.Writer, b []byte, chunked bool) (err error) {
	if chunked {
		if _, err = fmt.Fprintf(to, "%x\r\n", len(b)); err != nil {
			return err
		}
	}
	if _, err = to.Write(b); err == nil && chunked {
		_, err = io.WriteString(to, "\r\n")
	}
	return err
}

// endChunks ends a body in chunks, with the trailers of the request.
func (x *exchange) endChunks(to io.Writer) error {
	end := "0\r\n"
	for name, values := range x.r.Trailer {
		for _, v := range values {
			if isToken(name) && isText(v) && !private(name) && !hopByHop(name, nil) {
				end += name + ": " + v + "\r\n"
			}
		}
	}
	_, err := io.WriteString(to, end+"\r\n")
	return err
}
