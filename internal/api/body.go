package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/berthml/berth"
)

// What a request's body may be. Blobs and logs are streams of their own and have no bound here but
// that of their pace.
const (
	maxBody   = 4 << 20 // of a document
	maxValues = 200_000 // in a document, counting every member and element

	maxReportsBody = 16 << 20
	maxReports     = 10_000   // a runner sends those of 500 tasks at once
	maxTaskID      = 512      // bytes
	maxForm        = 64 << 10 // of a token endpoint
)

// BodyPace is how slowly a body may come before the connection is given up.
type BodyPace struct {
	Pause time.Duration // the longest wait for the next byte
	Grace time.Duration // waiting in all that any body may cost
	Rate  int64         // bytes that earn one more second of waiting
}

// bodyPace holds where Options do not say. A telephone line's upload is faster; a hundred large
// blobs over one slow link are too.
var bodyPace = BodyPace{Pause: time.Minute, Grace: time.Minute, Rate: 256}

// wait is how long the next read may take after n bytes came and reads took spent.
func (p BodyPace) wait(n int64, spent time.Duration) time.Duration {
	earned := p.Grace + time.Duration(min(n/p.Rate, 1<<32))*time.Second - spent
	return max(0, min(p.Pause, earned))
}

// pacedBody gives a body up that comes too slowly. The deadline is the connection's (HTTP/1) or the
// stream's (HTTP/2), so it also holds for what is left of the body after the answer. The end of the
// body lifts it, since the answer may take as long as it likes.
type pacedBody struct {
	io.ReadCloser
	pace  BodyPace
	rc    *http.ResponseController
	n     int64
	spent time.Duration
	until time.Time
	ended bool
}

// paced is r with its body under the server's pace. It is a copy, since package http looks at the
// body of its own.
func (s *Server) paced(w http.ResponseWriter, r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	pace := s.Pace
	if pace == (BodyPace{}) {
		pace = bodyPace
	}
	b := &pacedBody{ReadCloser: r.Body, pace: pace, rc: http.NewResponseController(w)}
	if !b.allow(time.Now()) {
		return r
	}
	c := *r
	c.Body = b
	return &c
}

// allow moves the deadline, at most as often as that makes a difference. False means that there is
// none to move, as in tests.
func (b *pacedBody) allow(now time.Time) bool {
	until := now.Add(b.pace.wait(b.n, b.spent))
	if d := until.Sub(b.until); d < 0 || d > b.pace.Pause/8 {
		b.until = until
		return b.rc.SetReadDeadline(until) == nil
	}
	return true
}

func (b *pacedBody) Read(p []byte) (int, error) {
	if b.ended {
		return b.ReadCloser.Read(p)
	}
	began := time.Now()
	b.allow(began)
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	b.spent += time.Since(began)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = &berth.Error{Code: berth.Invalid, Wire: "RequestTimeout", Msg: "the body came too slowly, or stopped coming: send it again", Err: err}
	case err != nil:
		b.ended = true
		b.rc.SetReadDeadline(time.Time{}) //nolint:errcheck // it could be set before
	}
	return n, err
}

// document reads a JSON document of bounded size into v, numbers keep their text; false when the
// body is empty.
func (c *call) document(v any, what string) (bool, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	if err != nil {
		return false, bodyError(err, maxBody)
	}
	c.received = raw
	if len(bytes.TrimSpace(raw)) == 0 {
		return false, nil
	}
	if n := countValues(raw); n > maxValues {
		return false, berth.Errorf(berth.Limit, "the document has more than %d values", maxValues)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(v); err != nil {
		return false, berth.Errorf(berth.Invalid, "the body is not %s: %w", what, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return false, berth.Errorf(berth.Invalid, "there is text after the JSON object of the body")
	}
	return true, nil
}

// countValues is how many members and elements JSON text has at most: what a decoder would make of
// it takes memory by their number, not by the length of the text.
func countValues(raw []byte) (n int) {
	quoted := false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == '{' || c == '['):
			n++
		}
	}
	return n
}

// bodyError says why a body could not be read.
func bodyError(err error, limit int64) error {
	var big *http.MaxBytesError
	var e *berth.Error
	switch {
	case errors.As(err, &big):
		return &berth.Error{Code: berth.Limit, Wire: "RequestEntityTooLarge", Msg: "the body is larger than " + sizeText(limit)}
	case errors.As(err, &e):
		return e
	}
	return berth.Errorf(berth.Invalid, "the body was cut off: %w", err)
}

func sizeText(n int64) string {
	if n >= 1<<20 {
		return strconv.FormatInt(n>>20, 10) + " MiB"
	}
	return strconv.FormatInt(n>>10, 10) + " KiB"
}

// readReports reads the body with a list of reports.
func readReports(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReportsBody))
	if err != nil {
		return nil, bodyError(err, maxReportsBody)
	}
	return b, nil
}

// decodeReports is the reports of a body.
func decodeReports(body []byte) (rs []berth.Report, err error) {
	bad := func(err error) error {
		return berth.Errorf(berth.Invalid, "the body is not a list of reports: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	first, err := dec.Token()
	if err != nil {
		return nil, bad(err)
	}
	if first != json.Delim('[') {
		return nil, berth.Errorf(berth.Invalid, "the body is not a list of reports")
	}
	for dec.More() {
		var one berth.Report
		if err := dec.Decode(&one); err != nil {
			return nil, bad(err)
		}
		if len(one.Task) > maxTaskID || len(one.Token) > 4*maxTaskID {
			return nil, berth.Errorf(berth.Invalid, "a report's task or token is too long")
		}
		if rs = append(rs, one); len(rs) > maxReports {
			return nil, berth.Errorf(berth.Invalid, "more than %d reports in one request", maxReports)
		}
	}
	if _, err := dec.Token(); err != nil { // the end of the list
		return nil, bad(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, berth.Errorf(berth.Invalid, "there is text after the list of reports")
	}
	return rs, nil
}

// postedForm reads the form that is sent to a token endpoint, if one is.
func postedForm(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	if r.Method != http.MethodPost || r.Body == nil {
		return url.Values{}, nil
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxForm))
	if err != nil {
		return nil, bodyError(err, maxForm)
	}
	f, err := url.ParseQuery(string(b))
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "the body is not a form")
	}
	return f, nil
}
