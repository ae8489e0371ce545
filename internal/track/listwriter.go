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
	w          *bufio.Writer // to a [sender]
	name       string
	alwaysList bool
	items      bool // there has been one
}

func (c *call) listWriter(name string) *listWriter {
	return &listWriter{w: bufio.NewWriterSize(sender{c}, 32<<10), name: name}
}

// add writes an item. Once some items have been sent, an error breaks the answer off, see
// [call.sent].
func (l *listWriter) add(item any) error {
	b, err := marshal(item)
	if err != nil {
		return err
	}
	before := ","
	if !l.items {
		l.items = true
		before = `{"` + l.name + `":[`
	}
	l.w.WriteString(before) //nolint:errcheck // the next write returns it
	_, err = l.w.Write(b)
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
