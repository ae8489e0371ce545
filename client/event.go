package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// maxEvents is how many events one page has at most.
const maxEvents = 5000

// Events is the first page of events after revision from: of one job, of a subject such as
// computes/cpu, or of the whole workspace when job is empty. rev is the server's revision at the
// time.
func (c *Client) Events(ctx context.Context, job string, from berth.Rev) (events []berth.Event, rev berth.Rev, err error) {
	var p struct {
		Value []berth.Event `json:"value"`
		Rev   berth.Rev     `json:"rev"`
	}
	path := withQuery(c.eventPath(job, from), "limit="+strconv.Itoa(maxEvents))
	err = c.call(ctx, http.MethodGet, path, nil, &p)
	return p.Value, p.Rev, err
}

func (c *Client) eventPath(job string, from berth.Rev) string {
	path := c.path("events")
	switch {
	case strings.Contains(job, "/"):
		path += "?subject=" + url.QueryEscape(job)
	case job != "":
		path = c.path("jobs", job, "events")
	}
	if from > 0 {
		path = withQuery(path, "from="+strconv.FormatInt(int64(from), 10))
	}
	return path
}

// Watch calls f for every event after revision from, as it happens, until ctx is done or f returns
// an error. A lost connection is resumed where it broke off.
func (c *Client) Watch(ctx context.Context, job string, from berth.Rev, f func(berth.Event) error) error {
	for attempt := 1; ; attempt++ {
		last, err := c.watch(ctx, job, from, f)
		if last > from {
			from, attempt = last, 1
		}
		if err != nil && !unreachable(err) {
			return err
		}
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
}

func (c *Client) watch(ctx context.Context, job string, from berth.Rev, f func(berth.Event) error) (berth.Rev, error) {
	req, err := c.request(ctx, http.MethodGet, c.eventPath(job, from), nil)
	if err != nil {
		return from, err
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := c.do(req)
	if err != nil {
		return from, err
	}
	defer resp.Body.Close() // opened for reading
	if resp.StatusCode >= 300 {
		return from, failure(resp)
	}
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			if ctx.Err() != nil {
				return from, ctx.Err()
			}
			return from, c.lost(err)
		}
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			continue
		}
		var e berth.Event
		if err := json.Unmarshal(data, &e); err != nil || e.Rev == 0 {
			continue // the word with which a server ends a stream
		}
		if err := f(e); err != nil {
			return from, err
		}
		from = e.Rev
	}
}
