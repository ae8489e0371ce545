package track

import (
	"bufio"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/berthml/berth/internal/track/points"
)

// errGone ends an answer that nobody reads any more.
var errGone = errors.New("the client has gone")

// A listWriter writes an answer that is a list, as its items are made. An empty list is left out,
// as everywhere, unless alwaysList is set.
type listWriter struct {
	encoder
	w          *bufio.Writer // to a [sender]
	name       string
	alwaysList bool
	one        bool // the answer is not a list but its one item
	items      bool // there has been one

	metrics []metricView // to be written
}

func (c *call) listWriter(name string) *listWriter {
	return &listWriter{encoder: encoder{c: c}, w: bufio.NewWriterSize(sender{c}, 32<<10), name: name}
}

// sendOne answers with one thing under a name.
func (c *call) sendOne(name string, add func(*listWriter) error) (any, error) {
	out := c.listWriter(name)
	out.one = true
	if err := add(out); err != nil {
		return nil, err
	}
	return nil, out.end(map[string]string{})
}

// add writes an item. Once some items have been sent, an error breaks the answer off, see
// [call.sent].
func (l *listWriter) add(item any) error {
	b, done, err := l.encode(item)
	if err != nil {
		return err
	}
	defer done()
	l.begin()
	_, err = l.w.Write(b)
	return err
}

// begin writes what is before an item.
func (l *listWriter) begin() {
	before := ","
	if !l.items {
		l.items = true
		before = `{"` + l.name + `":[`
		if l.one {
			before = `{"` + l.name + `":`
		}
	}
	l.w.WriteString(before) //nolint:errcheck // the next write returns it
}

// metricsSize is about how many bytes of metrics are written at a time.
const metricsSize = 16 << 10

// addWith writes an item whose last member is an object, and in that object a list of metrics, as
// each makes them: however many there are, few are in memory.
func (l *listWriter) addWith(item any, each func(add func(metricView) error) error) error {
	b, done, err := l.encode(item)
	if err != nil {
		return err
	}
	defer done()
	l.begin()
	b = b[:len(b)-len("}}")]
	before, after := `,"metrics":[`, "}}"
	if b[len(b)-1] == '{' {
		before = before[1:]
	}
	if _, err := l.w.Write(b); err != nil {
		return err
	}
	size := 0
	l.metrics = l.metrics[:0]
	flush := func() error {
		b, done, err := l.encode(l.metrics)
		if err != nil {
			return err
		}
		defer done()
		l.w.WriteString(before) //nolint:errcheck // the next write returns it
		_, err = l.w.Write(b[1 : len(b)-1])
		before, after, size, l.metrics = ",", "]}}", 0, l.metrics[:0]
		return err
	}
	err = each(func(v metricView) error {
		l.metrics = append(l.metrics, v)
		if size += len(v.Key) + len(v.Dataset) + 128; size < metricsSize {
			return nil
		}
		return flush()
	})
	if err == nil && len(l.metrics) > 0 {
		err = flush()
	}
	if err != nil {
		return err
	}
	_, err = l.w.WriteString(after)
	return err
}

// addPoint writes a point of a run's metric.
func (l *listWriter) addPoint(run, key string, p points.Point) error {
	v := viewOf(key, p)
	v.Run = run
	return l.add(v)
}

// end writes what follows the list: texts by name.
func (l *listWriter) end(texts map[string]string) error {
	b, err := json.Marshal(texts)
	if err != nil {
		return err
	}
	var list string
	switch {
	case l.one:
	case l.items:
		list = "]"
	case l.alwaysList:
		list = `{"` + l.name + `":[]`
	default:
		list = "{"
	}
	if list != "{" && len(texts) > 0 {
		list += ","
	}
	l.w.WriteString(list) //nolint:errcheck // Flush returns it
	l.w.Write(b[1:])      //nolint:errcheck // Flush returns it
	return l.w.Flush()
}

// A sender sends parts of an answer that were read while this server led: another server may have
// changed what others say. With the first part the request is answered with 200.
type sender struct{ c *call }

func (s sender) Write(p []byte) (int, error) {
	if err := s.c.s.leads(); err != nil {
		return 0, err
	}
	if !s.c.sent {
		s.c.sent = true
		s.c.w.Header().Set("Content-Type", "application/json")
		s.c.w.WriteHeader(http.StatusOK)
	}
	n, err := s.c.w.Write(p)
	if err != nil {
		return n, errGone
	}
	return n, nil
}
