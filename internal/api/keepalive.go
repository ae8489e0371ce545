package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
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
	defer conn.Close()
	defer context.AfterFunc(r.Context(), func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	// A report that was read is answered; the next one is for another server.
	defer context.AfterFunc(s.gate.stop, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	route := s.requests.route(reportsPath)
	keepalive.Serve(conn, buf.Reader, reportsPath, maxReportsBody, body, func(a *keepalive.Answer, body []byte) {
		begin := time.Now()
		out, err := s.report(r.Context(), body, begin)
		if err != nil {
			s.front.fail(a, r, err)
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
