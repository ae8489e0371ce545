package track

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/berthml/berth/internal/pace"
)

// What the body of a request that is not an artifact may be. A body is in memory from its first
// byte to the answer.
const (
	maxBody      = 32 << 20
	maxBatchBody = 8 << 20        // what fits into a run is less, also with escapes
	maxQuery     = 2<<20 + 64<<10 // of a request that changes nothing: the longest filter fits
	bodiesOfUser = 2 * maxBody    // together, at a time
	smallBody    = 64 << 10       // those up to it do not count
)

// readBody reads a body of at most so many bytes. One that is not small waits until those of the
// user's that are in memory leave room for it.
func (c *call) readBody(most int64) ([]byte, error) {
	if c.reads {
		most = maxQuery
	}
	if c.r.ContentLength > most {
		return nil, largeBody(most)
	}
	r := pace.Limit(c.w, c.r, pace.Document)
	body := http.MaxBytesReader(c.w, r.Body, most)
	var b bytes.Buffer
	_, err := b.ReadFrom(io.LimitReader(body, smallBody))
	if err == nil && b.Len() == smallBody {
		size := most
		if c.r.ContentLength >= 0 {
			size = c.r.ContentLength
		}
		pace.Wait(r, func() { c.body, err = c.s.bodies.takeSome(c.ctx, c.who.User, size) })
		if err != nil {
			return nil, err
		}
		if c.r.ContentLength >= 0 {
			b.Grow(int(size) - b.Len() + bytes.MinRead)
		}
		_, err = b.ReadFrom(body)
	}
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		return nil, largeBody(most)
	case errors.Is(err, pace.ErrSlow):
		return nil, refuse(badRequest, "The request's body came too slowly, or stopped coming: send it again, at %d KiB a second or more", pace.Document.Rate>>10)
	case err != nil:
		return nil, refuse(badRequest, "The request ended before its body did")
	}
	return b.Bytes(), nil
}

func largeBody(most int64) error { return invalid("The request is larger than %d MiB", most>>20) }
