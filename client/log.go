package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// LogOptions select a part of a job's log.
type LogOptions struct {
	Name   string // user_logs/std_log.txt when empty
	Offset int64  // byte to begin at
	Tail   int    // lines before the end to begin at; 0 is not asked for
	Follow bool   // go on until the job has ended
	// Chosen, if not nil, is called with the name of the log if none was requested and the job has
	// failed: that of the process that failed.
	Chosen func(name string)
}

// Log copies a job's log to w and returns the offset after the last byte written. An error of w is
// returned unchanged.
func (c *Client) Log(ctx context.Context, job string, o LogOptions, w io.Writer) (int64, error) {
	path := c.path("jobs", job, "logs")
	if o.Name != "" {
		path += "/" + escapePath(o.Name)
	}
	q := url.Values{}
	if o.Offset > 0 {
		q.Set("offset", strconv.FormatInt(o.Offset, 10))
	}
	if o.Tail > 0 {
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	if o.Follow {
		q.Set("follow", "true")
	}
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	req, err := c.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return o.Offset, err
	}
	resp, err := c.do(req)
	if err != nil {
		return o.Offset, err
	}
	defer resp.Body.Close() // opened for reading
	if resp.StatusCode >= 300 {
		return o.Offset, failure(resp)
	}
	at := o.Offset
	if n, err := strconv.ParseInt(resp.Header.Get("X-Berth-Offset"), 10, 64); err == nil {
		at = n
	}
	if name := resp.Header.Get("X-Berth-Log"); name != "" && o.Chosen != nil {
		o.Chosen(name)
	}
	var sink writeError
	sink.w = w
	n, err := io.CopyBuffer(&sink, resp.Body, make([]byte, 128<<10))
	if sink.err != nil {
		return at + n, sink.err
	}
	return at + n, c.lost(err)
}

// writeError remembers the error of a writer, to tell it from the reader's.
type writeError struct {
	w   io.Writer
	err error
}

func (w *writeError) Write(b []byte) (int, error) {
	n, err := w.w.Write(b)
	if err != nil {
		w.err = err
	}
	return n, err
}

// patience is how long Follow waits for a server that has gone away.
const patience = 5 * time.Minute

// Follow copies a job's log to w until the job has ended, and returns the job. If the connection is
// lost, it reconnects for the rest; away, if not nil, is called once each time.
func (c *Client) Follow(ctx context.Context, job string, o LogOptions, w io.Writer, away func(error)) (*Job, error) {
	o.Follow = true
	var since time.Time // of the cut
	for attempt := 1; ; {
		at, err := c.Log(ctx, job, o, w)
		if at != o.Offset {
			o.Offset, attempt = at, 1
		}
		o.Tail = 0
		var j *Job
		if err == nil {
			j, err = c.Job(ctx, job)
		}
		switch {
		case err == nil && j.Status().Terminal():
			return j, nil
		case err == nil:
			since = time.Time{}
		case !unreachable(err):
			return nil, err
		case since.IsZero():
			since = time.Now()
			if away != nil {
				away(err)
			}
		case time.Since(since) > patience:
			return nil, err
		}
		if err := pause(ctx, attempt); err != nil {
			return nil, err
		}
		attempt++
	}
}

func unreachable(err error) bool {
	var u *Unreachable
	return errors.As(err, &u) || berth.CodeOf(err) == berth.Unavailable
}

// escapePath escapes each segment of a name with slashes.
func escapePath(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}
