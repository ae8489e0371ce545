package track

import (
	"errors"
	"io"
	"net/http"

	"github.com/berthml/berth/internal/pace"
)

// What the body of a request that is not an artifact may be. A batch has a limit of its own, of
// MLflow's. A body is in memory from its first byte on.
const (
	maxBody  = 32 << 20
	maxQuery = 2<<20 + 64<<10 // of a request that changes nothing: the longest filter fits
)

func (c *call) readBody() ([]byte, error) {
	most := int64(maxBody)
	if c.reads {
		most = maxQuery
	}
	b, err := io.ReadAll(http.MaxBytesReader(c.w, pace.Limit(c.w, c.r, pace.Document).Body, most))
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		return nil, invalid("The request is larger than %d MiB", most>>20)
	case errors.Is(err, pace.ErrSlow):
		return nil, refuse(badRequest, "The request's body came too slowly, or stopped coming: send it again, at %d KiB a second or more", pace.Document.Rate>>10)
	case err != nil:
		return nil, refuse(badRequest, "The request ended before its body did")
	}
	return b, nil
}
