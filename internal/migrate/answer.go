package migrate

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/berthml/berth"
)

// answer is what a server sends, up to a number of bytes.
type answer struct {
	body io.Reader
	n    int64
	most int64
	// value is how many bytes one element may have, and done where the last one ended; 0 is any.
	value, done int64
}

func (a *answer) Read(b []byte) (int, error) {
	switch {
	case a.n > a.most:
		return 0, &tooLong{berth.Errorf(berth.Invalid, "it has more than %d MiB; "+makeLess, a.most>>20)}
	case a.value > 0 && a.n-a.done > a.value: // a decoder reads only until it has an element
		return 0, &tooLong{berth.Errorf(berth.Invalid, "one of its elements has more than %d bytes; "+checkSource, a.value)}
	}
	n, err := a.body.Read(b)
	a.n += int64(n)
	return n, err
}

// readList reads an object that has a list of some name, and the token of the next page. It calls
// each to decode every element.
func (a *answer) readList(name string, each func(*json.Decoder) error) (token string, err error) {
	d := json.NewDecoder(a)
	if err := expect(d, '{'); err != nil {
		return "", err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return "", err
		}
		switch key {
		case name:
			err = a.readElements(d, each)
		case "next_page_token":
			err = d.Decode(&token)
		default:
			var other json.RawMessage
			err = d.Decode(&other)
		}
		if err != nil {
			return "", err
		}
		a.done = d.InputOffset()
	}
	return token, expect(d, '}')
}

// readElements reads a list, or null.
func (a *answer) readElements(d *json.Decoder, each func(*json.Decoder) error) error {
	t, err := d.Token()
	switch {
	case err != nil:
		return err
	case t == nil:
		return nil
	case t != json.Delim('['):
		return errNoList
	}
	for d.More() {
		if err := each(d); err != nil {
			return err
		}
		a.done = d.InputOffset()
	}
	return expect(d, ']')
}

var errNoList = berth.Errorf(berth.Invalid, "it has a value where MLflow has a list or an object")

// expect reads a delimiter.
func expect(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	switch {
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	case err == nil && t != want:
		return errNoList
	}
	return err
}

// body is what a server sends for as long as it keeps sending.
type body struct {
	s    *server
	ctx  context.Context
	end  context.CancelCauseFunc
	from io.ReadCloser
	what string
	// left is how much of the server's time is left, for so many bytes that came in it.
	left time.Duration
	came int64
}

func (b *body) Read(to []byte) (int, error) {
	timer, begun := time.AfterFunc(b.left, func() { b.end(errTimeout) }), time.Now()
	n, err := b.from.Read(to)
	timer.Stop()
	b.left -= time.Since(begun) // and not while others take what came
	if b.came += int64(n); b.came >= progress {
		b.left, b.came = b.s.patience, 0
	}
	if err == nil || err == io.EOF {
		return n, err
	}
	if late := b.s.timeoutOr(b.ctx, "with "+b.what, err); late != err {
		return n, late
	}
	return n, berth.Errorf(berth.Unavailable, "reading %s from the MLflow server %s: %w; import again to go on", clip(b.what), b.s.base, err)
}

func (b *body) Close() error {
	b.end(context.Canceled)
	return b.from.Close()
}

// remoteFile is a file that a server sends. It has as many bytes as its list says.
type remoteFile struct {
	*body
	name string
	size int64 // unlisted where the list has none
	n    int64
}

func (f *remoteFile) Read(b []byte) (int, error) {
	n, err := f.body.Read(b)
	f.n += int64(n)
	switch {
	case f.size == unlisted && f.n > maxUnlisted:
		return 0, berth.Errorf(berth.Invalid, "it has more than %d GiB, and the MLflow server lists no size; import this file by hand", int64(maxUnlisted)>>30)
	case f.size != unlisted && f.n > f.size:
		return 0, berth.Errorf(berth.Invalid, "it has more bytes than the %d that the MLflow server has listed; import again when nothing writes to it", f.size)
	case err == io.EOF && f.size != unlisted && f.n < f.size:
		return 0, berth.Errorf(berth.Invalid, "%s has %d bytes, but the MLflow server has listed %d; import again when nothing writes to it", f.name, f.n, f.size)
	}
	return n, err
}
