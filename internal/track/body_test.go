package track

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A slow body sends so many bytes at once, then a piece after each pause.
type slowBody struct {
	first, piece, left int
	pause              time.Duration
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), b.left, max(b.first, b.piece))
	if b.first > 0 {
		n = min(n, b.first)
		b.first -= n
	} else {
		time.Sleep(b.pause)
	}
	b.left -= n
	return n, nil
}

// TestBodiesComeInTime: a body that stops coming, or comes ever more slowly, is given up, however
// much of it has come. One over a slow link is not.
func TestBodiesComeInTime(t *testing.T) {
	for _, c := range []struct {
		what  string
		body  slowBody
		given time.Duration // up, at the latest; 0 if the body is read
	}{
		{"a byte every 15 seconds", slowBody{0, 1, 1 << 20, 15 * time.Second}, 2 * time.Minute},
		{"a byte every 15 seconds after 31 MiB", slowBody{31 << 20, 1, 32 << 20, 15 * time.Second}, 2 * time.Minute},
		{"4 KiB/s after 8 MiB", slowBody{8 << 20, 4 << 10, 32 << 20, time.Second}, 2 * time.Minute},
		{"20 KiB/s", slowBody{0, 20 << 10, 32 << 20, time.Second}, 0},
		{"a batch over 10 KiB/s", slowBody{0, 10 << 10, 1 << 20, time.Second}, 0},
		{"one pause of 50 seconds", slowBody{31 << 20, 1 << 20, 31<<20 + 1, 50 * time.Second}, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				size, began := c.body.left, time.Now()
				r := httptest.NewRequest("POST", "http://h/", &c.body)
				b, err := (&call{w: httptest.NewRecorder(), r: r}).readBody()
				took := time.Since(began)
				switch f, _ := faultOf(err); {
				case c.given == 0 && (err != nil || len(b) != size):
					t.Errorf("%d bytes after %s: %v", len(b), took, err)
				case c.given > 0 && (err == nil || took > c.given || f.Code != badRequest || !strings.Contains(f.Message, "too slowly")):
					t.Errorf("after %s: %v", took, err)
				}
			})
		})
	}
}
