package track

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// What the body of a request that is not an artifact may be. A batch has a limit of its own, of
// MLflow's. A body is in memory from its first byte on.
const (
	maxBody  = 32 << 20
	maxQuery = 2<<20 + 64<<10 // of a request that changes nothing: the longest filter fits

	bodyGrace = time.Minute // the most that any body is waited for without more of it
	bodyRate  = 16 << 10    // bytes that earn a second of waiting
)

var errSlowBody = refuse(badRequest, "The request's body came too slowly: send it again, at %d KiB a second or more", bodyRate>>10)

// A timelyBody gives up a body that comes too slowly, however much of it has come. What stops
// coming altogether the server gives up.
type timelyBody struct {
	r    io.Reader
	left time.Duration // that may be waited
}

func (b *timelyBody) Read(p []byte) (int, error) {
	began := time.Now()
	n, err := b.r.Read(p)
	earned := time.Duration(n) * time.Second / bodyRate
	if b.left = min(bodyGrace, b.left+earned-time.Since(began)); b.left < 0 && err == nil {
		err = errSlowBody
	}
	return n, err
}

func (c *call) readBody() ([]byte, error) {
	most := int64(maxBody)
	if c.reads {
		most = maxQuery
	}
	b, err := io.ReadAll(&timelyBody{http.MaxBytesReader(c.w, c.r.Body, most), bodyGrace})
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		return nil, invalid("The request is larger than %d MiB", most>>20)
	case errors.Is(err, errSlowBody):
		return nil, err
	case err != nil:
		return nil, refuse(badRequest, "The request ended before its body did")
	}
	return b, nil
}
