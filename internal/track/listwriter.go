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
// as everywhere, unless it is kept.
type listWriter struct {
	c     *call
	name  string
	keep  bool          // an empty list is sent
	w     *bufio.Writer // nil before the answer has begun
	items bool          // there has been one
}

func (c *call) listWriter(name string) *listWriter { return &listWriter{c: c, name: name} }

// add writes an item. From the first on the request is answered with 200, and an error later breaks
// the answer off, see [call.sent].
func (l *listWriter) add(item any) error {
	b, err := marshal(item)
	if err != nil {
		return err
	}
	if !l.items {
		l.items = true
		l.begin()
		l.w.WriteString(`"` + l.name + `":[`) //nolint:errcheck // the next write returns it
	} else {
		l.w.WriteByte(',') //nolint:errcheck // the next write returns it
	}
	if _, err := l.w.Write(b); err != nil {
		return errGone
	}
	return nil
}

// addPoint writes a point of a run's metric.
func (l *listWriter) addPoint(run, key string, p points.Point) error {
	v := viewOf(key, p)
	v.Run = run
	return l.add(v)
}

func (l *listWriter) begin() {
	l.c.sent = true
	l.c.w.Header().Set("Content-Type", "application/json")
	l.c.w.WriteHeader(http.StatusOK)
	l.w = bufio.NewWriterSize(l.c.w, 32<<10)
	l.w.WriteByte('{') //nolint:errcheck // the next write returns it
}

// end writes what follows the list: texts by name.
func (l *listWriter) end(texts map[string]string) error {
	b, err := json.Marshal(texts)
	if err != nil {
		return err
	}
	list := "]"
	if !l.items {
		l.begin()
		if list = ""; l.keep {
			list = `"` + l.name + `":[]`
		}
	}
	if list != "" && len(texts) > 0 {
		list += ","
	}
	l.w.WriteString(list) //nolint:errcheck // Flush returns it
	l.w.Write(b[1:])      //nolint:errcheck // Flush returns it
	if l.w.Flush() != nil {
		return errGone
	}
	return nil
}
