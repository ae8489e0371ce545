package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/pace"
)

// What a request's body may be. Blobs and logs are streams of their own and have no bound here but
// that of their pace, which is slower than that of what is held here.
const (
	maxBody   = 4 << 20 // of a document
	maxValues = 200_000 // in a document, counting every member and element

	maxReportsBody = 16 << 20
	maxReports     = 10_000   // a runner sends those of 500 tasks at once
	maxTaskID      = 512      // bytes
	maxForm        = 64 << 10 // of a token endpoint
)

// document reads a JSON document of bounded size into v, numbers keep their text; false when the
// body is empty.
func (c *call) document(v any, what string) (bool, error) {
	raw, err := readAll(c.w, c.r, maxBody)
	if err != nil {
		return false, err
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

// readAll reads a body into memory.
func readAll(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	b, err := io.ReadAll(http.MaxBytesReader(w, pace.Limit(w, r, pace.Document).Body, limit))
	if err != nil {
		return nil, bodyError(err, limit)
	}
	return b, nil
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
	return readAll(w, r, maxReportsBody)
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
	b, err := readAll(w, r, maxForm)
	if err != nil {
		return nil, err
	}
	f, err := url.ParseQuery(string(b))
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "the body is not a form")
	}
	return f, nil
}

// passOn sends the request, whose body has been read, to the server that leads, as Options.PassOn
// does. It returns false where this server is to answer.
func (c *call) passOn(send func(http.ResponseWriter, *http.Request) (bool, error)) (bool, error) {
	if send == nil {
		return false, nil
	}
	r := c.r.Clone(c.ctx())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(c.received)), int64(len(c.received))
	return send(c.w, r)
}
