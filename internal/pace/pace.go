// Package pace gives up the bodies of requests that come too slowly.
package pace

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// A Pace is how slowly a body may come before it is given up.
type Pace struct {
	Pause time.Duration // the longest wait for the next byte
	Grace time.Duration // the most that is waited for more, however much has come
	Rate  int64         // bytes that earn one more second of waiting, up to Grace
}

// The usual paces. A telephone line's upload is faster than Stream; a hundred large blobs over one
// slow link are too.
var (
	// Stream is for files and logs, which are written to the disk as they come.
	Stream = Pace{Pause: time.Minute, Grace: time.Minute, Rate: 256}
	// Document is for bodies that are in memory from their first byte to the answer.
	Document = Pace{Pause: time.Minute, Grace: time.Minute, Rate: 16 << 10}
)

// stricter is what holds where two paces do.
func (p Pace) stricter(q Pace) Pace {
	return Pace{Pause: min(p.Pause, q.Pause), Grace: min(p.Grace, q.Grace), Rate: max(p.Rate, q.Rate)}
}

// ErrSlow is the cause of the error with which a body ends that came too slowly.
var ErrSlow = errors.New("the body came too slowly")

// body gives a body up that comes too slowly. The deadline is the connection's (HTTP/1) or the
// stream's (HTTP/2), so it also holds for what is left of the body after the answer. The end of the
// body lifts it, since the answer may take as long as it likes.
type body struct {
	io.ReadCloser
	pace  Pace
	rc    *http.ResponseController
	left  time.Duration // that may be waited
	until time.Time
	ended bool

	mu   sync.Mutex
	over bool // the request is answered, and its deadline another one's
}

// deadline sets that of the connection or stream, or none.
func (b *body) deadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		b.rc.SetReadDeadline(t) //nolint:errcheck // there may be none to set, as in tests
	}
}

// End says that the handler of a request of Limit returns. Whoever still reads the body, as a
// client that sends it on may do in a goroutine of its own, sets no deadline any more: the server
// has taken back what it would be set by.
func End(r *http.Request) {
	if b, ok := r.Body.(*body); ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.over = true
	}
}

// Limit returns r with its body under a pace. It is a copy, since package http looks at the body of
// its own. Of a request that has a pace the stricter one holds from here on.
func Limit(w http.ResponseWriter, r *http.Request, p Pace) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	if b, ok := r.Body.(*body); ok {
		b.pace = b.pace.stricter(p)
		b.left = min(b.left, b.pace.Grace)
		return r
	}
	b := &body{ReadCloser: r.Body, pace: p, rc: http.NewResponseController(w), left: p.Grace}
	b.allow(time.Now())
	c := *r
	c.Body = b
	return &c
}

// Wait calls fn while a request of Limit is not read, for which its sender is not to blame.
func Wait(r *http.Request, fn func()) {
	if b, ok := r.Body.(*body); ok && !b.ended {
		b.deadline(time.Time{})
		b.until = time.Time{}
		defer func() { b.allow(time.Now()) }()
	}
	fn()
}

// allow moves the deadline, at most as often as that makes a difference. Where there is none to
// move, as in tests, only what has come is judged.
func (b *body) allow(now time.Time) {
	until := now.Add(max(0, min(b.pace.Pause, b.left)))
	if d := until.Sub(b.until); d < 0 || d > b.pace.Pause/8 {
		b.until = until
		b.deadline(until)
	}
}

func (b *body) Read(p []byte) (int, error) {
	if b.ended {
		return b.ReadCloser.Read(p)
	}
	began := time.Now()
	b.allow(began)
	n, err := b.ReadCloser.Read(p)
	earned := time.Duration(n) * time.Second / time.Duration(b.pace.Rate)
	b.left = min(b.pace.Grace, b.left+earned-time.Since(began))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), err == nil && b.left < 0:
		err = &berth.Error{
			Code: berth.Invalid, Wire: "RequestTimeout", Err: ErrSlow,
			Msg: fmt.Sprintf("the body came too slowly, or stopped coming: send it again, at %d bytes a second or more", b.pace.Rate),
		}
	case err != nil:
		b.ended = true
		b.deadline(time.Time{})
	}
	return n, err
}
