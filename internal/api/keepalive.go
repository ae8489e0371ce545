package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"time"

	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/keepalive"
)

// reportsPath is where runners report.
const reportsPath = "/runner/v1/reports"

// line serves the first report on a connection of this machine, and all that follow on it. Each
// node has such a connection. Every report carries the proof of its own task; a runner elsewhere
// also has to show one of them before its body is read.
func (s *runnerService) line(w http.ResponseWriter, r *http.Request) {
	if _, local := auth.From(r.Context()); !local || r.ProtoMajor != 1 || r.Close {
		s.front.authenticate(s.reports).ServeHTTP(w, r)
		return
	}
	body, err := readReports(w, r)
	if err != nil {
		s.front.fail(w, r, err)
		return
	}
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil { // a test's
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.front.authenticate(s.reports).ServeHTTP(w, r)
		return
	}
	if !s.gate.enter() {
		conn.Close()
		return
	}
	// A goroutine and a reader of its own: what package http keeps for a request is more than the
	// rest of a connection takes, and a server has one for each node.
	rest, _ := buf.Peek(buf.Reader.Buffered())
	go s.answerReports(conn, bufio.NewReader(io.MultiReader(bytes.NewReader(rest), conn)), body)
}

// answerReports answers reports on a connection, until the other side or the server ends it. It was
// let in at the gate.
func (s *runnerService) answerReports(conn net.Conn, in *bufio.Reader, body []byte) {
	defer s.gate.leave()
	defer conn.Close()
	defer func() { // as package http does: one request must not end the server
		if v := recover(); v != nil {
			s.log.Error("a report could not be taken", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	ctx := s.gate.cut
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	// A report that was read is answered; the next one is for another server.
	defer context.AfterFunc(s.gate.stop, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	request := (&http.Request{Method: http.MethodPost, URL: &url.URL{Path: reportsPath}}).WithContext(ctx)
	route := s.requests.route(reportsPath)
	keepalive.Serve(conn, in, reportsPath, maxReportsBody, body, func(a *keepalive.Answer, body []byte) {
		begin := time.Now()
		out, err := s.report(ctx, body, begin)
		if err != nil {
			s.front.fail(a, request, err)
		} else {
			a.Body = out
		}
		s.requests.count(route, http.MethodPost, a.Status, time.Since(begin))
	})
}

// report takes reports and is the answer to them. now is by the wall clock with its stopwatch: for
// tokens and for when to write samples; what is kept is dated by the transaction.
func (s *runnerService) report(ctx context.Context, body []byte, now time.Time) ([]byte, error) {
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
