package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/berthml/berth/internal/auth"
)

// reportsPath is where runners report.
const reportsPath = "/runner/v1/reports"

// line serves the first report on a connection of this machine, and all that follow on it. Each node has such a connection, and what
// package http does for every request costs more than a small report does. Every report carries the proof of its own task; a runner
// elsewhere also has to show one of them before its body is read.
func (s *Server) line(w http.ResponseWriter, r *http.Request) {
	if _, local := auth.From(r.Context()); !local || r.ProtoMajor != 1 || r.Close {
		s.authenticate(s.reports).ServeHTTP(w, r)
		return
	}
	body, err := readReports(w, r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil { // a test's
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.authenticate(s.reports).ServeHTTP(w, r)
		return
	}
	defer conn.Close()
	defer context.AfterFunc(r.Context(), func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	// A report that was read is answered; the next one is for another server.
	defer context.AfterFunc(s.gate.stop, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	var a lineAnswer
	for {
		a.reset()
		if out, err := s.report(r.Context(), body, time.Now()); err != nil {
			s.fail(&a, r, err)
		} else {
			a.body = out
		}
		if a.send(conn) != nil {
			return
		}
		if body, err = lineRequest(buf.Reader, body); err != nil {
			return
		}
	}
}

var errLine = errors.New("not a report: it is for another connection")

// lineRequest reads a report as runners send it, into space if there is enough. Everything else ends the line.
func lineRequest(r *bufio.Reader, space []byte) ([]byte, error) {
	first, err := r.ReadSlice('\n')
	if err != nil || string(bytes.TrimRight(first, "\r\n")) != "POST "+reportsPath+" HTTP/1.1" {
		return nil, errors.Join(errLine, err)
	}
	length := -1
	for {
		l, err := r.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if l = bytes.TrimRight(l, "\r\n"); len(l) == 0 {
			break
		}
		name, value, _ := bytes.Cut(l, []byte(":"))
		switch value = bytes.TrimSpace(value); {
		case bytes.EqualFold(name, []byte("Content-Length")) && length < 0:
			if length, err = strconv.Atoi(string(value)); err != nil {
				return nil, err
			}
		case bytes.EqualFold(name, []byte("Host")), bytes.EqualFold(name, []byte("Content-Type")):
		default:
			return nil, errLine
		}
	}
	if length < 0 || length > maxReportsBody {
		return nil, errLine
	}
	if cap(space) < length || cap(space) > 64<<10 {
		space = make([]byte, length)
	}
	_, err = io.ReadFull(r, space[:length])
	return space[:length], err
}

// lineAnswer is an answer that is sent in one piece.
type lineAnswer struct {
	header http.Header
	status int
	body   []byte
	out    []byte
}

// Header, WriteHeader and Write are those of [http.ResponseWriter].
func (a *lineAnswer) Header() http.Header    { return a.header }
func (a *lineAnswer) WriteHeader(status int) { a.status = status }
func (a *lineAnswer) Write(p []byte) (int, error) {
	a.body = append(a.body, p...)
	return len(p), nil
}

func (a *lineAnswer) reset() {
	if a.header == nil || len(a.header) > 0 {
		a.header = http.Header{}
	}
	a.status, a.body = http.StatusOK, nil
}

func (a *lineAnswer) send(c net.Conn) error {
	a.out = append(a.out[:0], "HTTP/1.1 "...)
	a.out = strconv.AppendInt(a.out, int64(a.status), 10)
	a.out = append(a.out, " "+http.StatusText(a.status)+"\r\nContent-Type: application/json\r\nContent-Length: "...)
	a.out = strconv.AppendInt(a.out, int64(len(a.body)), 10)
	a.out = append(append(a.out, "\r\n\r\n"...), a.body...)
	_, err := c.Write(a.out)
	return err
}

// report takes reports and is the answer to them.
func (s *Server) report(ctx context.Context, body []byte, now time.Time) ([]byte, error) {
	rs, err := decodeReports(body)
	if err != nil {
		return nil, err
	}
	answer, err := s.deliver(ctx, rs, now)
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}
