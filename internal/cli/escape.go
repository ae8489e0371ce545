package cli

import (
	"io"
	"unicode/utf8"

	"github.com/berthml/berth/internal/spec"
)

// legibleWriter writes what jobs and other people wrote to a terminal without letting it command
// the terminal: no titles, no clipboard, no moving about. Colours pass when they may, and so do
// tabs, returns and the erasing of a line, which progress bars are made of. The rest is shown by
// its escape.
type legibleWriter struct {
	w      io.Writer
	colors bool
	held   []byte // the beginning of something whose end has not come yet
}

// longest is how long a sequence of an escape character may be before it is taken for something
// else.
const longest = 64

// safe is where bytes go that others wrote: as they are into a file or a pipe.
func (s *session) safe() io.Writer {
	if !s.out.tty {
		return s.out
	}
	return &legibleWriter{w: s.out, colors: true}
}

// Write takes all of p.
func (t *legibleWriter) Write(p []byte) (int, error) {
	in := append(t.held, p...)
	t.held = nil
	out := make([]byte, 0, len(in)+16)
	for i := 0; i < len(in); {
		n, whole := t.next(in[i:])
		if !whole {
			t.held = append(t.held, in[i:]...)
			break
		}
		if t.passes(in[i : i+n]) {
			out = append(out, in[i:i+n]...)
		} else {
			out = append(out, escaped(in[i:i+n])...)
		}
		i += n
	}
	if _, err := t.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// flush shows what was held back.
func (t *legibleWriter) flush() error {
	_, err := io.WriteString(t.w, escaped(t.held))
	t.held = nil
	return err
}

// flush shows what a writer of safe held back.
func flush(w io.Writer) error {
	if t, ok := w.(*legibleWriter); ok {
		return t.flush()
	}
	return nil
}

// next is the length of the character or sequence that b begins with; false when its end has not
// come yet.
func (t *legibleWriter) next(b []byte) (n int, whole bool) {
	if b[0] != 0x1b {
		if !utf8.FullRune(b) {
			return 0, false
		}
		_, n = utf8.DecodeRune(b)
		return n, true
	}
	if len(b) < 2 {
		return 0, false
	}
	if b[1] != '[' {
		return 1, true
	}
	for i := 2; i < len(b) && i < longest; i++ {
		if b[i] < 0x20 || b[i] > 0x3f {
			if b[i] < 0x40 || b[i] > 0x7e {
				return 1, true // it is not a sequence
			}
			return i + 1, true
		}
	}
	return 1, len(b) >= longest
}

// passes says whether a character or sequence goes to the terminal as it is.
func (t *legibleWriter) passes(b []byte) bool {
	switch b[0] {
	case '\n', '\t', '\r':
		return true
	case 0x1b:
		return t.colors && len(b) > 2 && (b[len(b)-1] == 'm' || b[len(b)-1] == 'K')
	}
	if b[0] < 0x20 || b[0] == 0x7f || len(b) == 1 && b[0] >= 0x80 {
		return false
	}
	r, _ := utf8.DecodeRune(b)
	return r < 0x80 || r > 0x9f
}

// escaped is spec.Printable of bytes that may be no text at all.
func escaped(b []byte) string {
	var out []byte
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			const hex = "0123456789abcdef"
			out = append(out, '\\', 'x', hex[b[0]>>4], hex[b[0]&15])
		} else {
			out = append(out, spec.Printable(string(r))...)
		}
		b = b[n:]
	}
	return string(out)
}
