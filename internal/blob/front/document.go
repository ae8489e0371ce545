package front

import (
	"bufio"
	"encoding/xml"
	"strings"
)

// A document is XML being sent. Errors of the connection show at Flush.
type document struct{ w *bufio.Writer }

func (c *call) document() *document {
	c.w.Header().Set("Content-Type", "application/xml")
	d := &document{bufio.NewWriterSize(c.w, 16<<10)}
	d.raw(xml.Header)
	return d
}

func (d *document) raw(s string)        { d.w.WriteString(s) }                                            //nolint:errcheck // Flush
func (d *document) text(s string)       { xml.EscapeText(d.w, []byte(strings.ToValidUTF8(s, "\uFFFD"))) } //nolint:errcheck // Flush
func (d *document) open(name string)    { d.raw("<" + name + ">") }
func (d *document) close(name string)   { d.raw("</" + name + ">") }
func (d *document) empty(name string)   { d.raw("<" + name + "/>") }
func (d *document) leaf(name, s string) { d.open(name); d.text(s); d.close(name) }
