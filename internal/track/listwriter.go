package track

import (
	"bufio"
	"encoding/json"
	"errors"
	"net/http"
)

// errGone ends an answer that nobody reads any more.
var errGone = errors.New("the client has gone")

// A listWriter writes an answer that is a list, as its items are made. An empty list is left out,
// as everywhere.
type listWriter struct {
	c    *call
	name string
	w    *bufio.Writer // nil before the first item
}

func (c *call) listWriter(name string) *listWriter { return &listWriter{c: c, name: name} }

// add writes an item. From the first on the request is answered with 200, and an error later breaks
// the answer off, see [call.sent].
func (l *listWriter) add(item any) error {
	b, err := json.Marshal(item)
	if err != nil {
		return err
	}
	sep := ","
	if l.w == nil {
		l.begin()
		sep = `{"` + l.name + `":[`
	}
	l.w.WriteString(sep) //nolint:errcheck // the next write returns it
	if _, err := l.w.Write(b); err != nil {
		return errGone
	}
	return nil
}

func (l *listWriter) begin() {
	l.c.sent = true
	l.c.w.Header().Set("Content-Type", "application/json")
	l.c.w.WriteHeader(http.StatusOK)
	l.w = bufio.NewWriterSize(l.c.w, 32<<10)
}

// end writes what follows the list: texts by name.
func (l *listWriter) end(texts map[string]string) error {
	b, err := json.Marshal(texts)
	if err != nil {
		return err
	}
	if l.w == nil {
		l.begin()
	} else {
		l.w.WriteByte(']') //nolint:errcheck // Flush returns it
		if b = b[1:]; len(texts) > 0 {
			l.w.WriteByte(',') //nolint:errcheck // Flush returns it
		}
	}
	l.w.Write(b) //nolint:errcheck // Flush returns it
	if l.w.Flush() != nil {
		return errGone
	}
	return nil
}
