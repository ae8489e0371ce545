package pace_test

import (
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/pace"
)

// A slowBody sends so many bytes at once, then a piece after each pause.
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
		pace  pace.Pace
		body  slowBody
		given time.Duration // up, at the latest; 0 if the body is read
	}{
		{"a byte every 15 seconds", pace.Document, slowBody{0, 1, 1 << 20, 15 * time.Second}, 2 * time.Minute},
		{"a byte every 15 seconds after 31 MiB", pace.Document, slowBody{31 << 20, 1, 32 << 20, 15 * time.Second}, 2 * time.Minute},
		{"4 KiB/s after 8 MiB", pace.Document, slowBody{8 << 20, 4 << 10, 32 << 20, time.Second}, 2 * time.Minute},
		{"20 KiB/s", pace.Document, slowBody{0, 20 << 10, 32 << 20, time.Second}, 0},
		{"a batch over 10 KiB/s", pace.Document, slowBody{0, 10 << 10, 1 << 20, time.Second}, 0},
		{"one pause of 50 seconds", pace.Document, slowBody{31 << 20, 1 << 20, 31<<20 + 1, 50 * time.Second}, 0},
		{"a file over 300 bytes a second", pace.Stream, slowBody{0, 300, 1 << 20, time.Second}, 0},
		{"a file over 200 bytes a second", pace.Stream, slowBody{0, 200, 1 << 20, time.Second}, 10 * time.Minute},
		{"a byte every 15 seconds after a whole file", pace.Stream, slowBody{31 << 20, 1, 32 << 20, 15 * time.Second}, 2 * time.Minute},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				size, began := c.body.left, time.Now()
				w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "http://h/", &c.body)
				b, err := io.ReadAll(pace.Limit(w, r, c.pace).Body)
				took := time.Since(began)
				switch {
				case c.given == 0 && (err != nil || len(b) != size):
					t.Errorf("%d bytes after %s: %v", len(b), took, err)
				case c.given > 0 && (!errors.Is(err, pace.ErrSlow) || berth.CodeOf(err) != berth.Invalid || took > c.given):
					t.Errorf("after %s: %v", took, err)
				}
			})
		})
	}
}

// TestStricterPaceHolds: a body that is read as a document has the pace of one, whatever pace its
// request was let in with.
func TestStricterPaceHolds(t *testing.T) {
	for _, paces := range [][2]pace.Pace{{pace.Stream, pace.Document}, {pace.Document, pace.Stream}} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "http://h/", &slowBody{0, 300, 1 << 20, time.Second})
			r = pace.Limit(w, r, paces[0])
			_, err := io.ReadAll(pace.Limit(w, r, paces[1]).Body)
			if took := time.Since(began); !errors.Is(err, pace.ErrSlow) || took > 2*time.Minute {
				t.Errorf("after %s: %v", took, err)
			}
		})
	}
}

// deadlines remembers the last deadline that was set.
type deadlines struct {
	*httptest.ResponseRecorder
	last time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.last = t
	return nil
}

// TestWaitsAreNotTheSenders: while a body is not read on purpose, no deadline passes.
func TestWaitsAreNotTheSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		r := pace.Limit(w, httptest.NewRequest("POST", "http://h/", &slowBody{first: 10, left: 10}), pace.Document)
		if !w.last.After(time.Now()) {
			t.Fatalf("there is no deadline: %s", w.last)
		}
		pace.Wait(r, func() {
			if !w.last.IsZero() {
				t.Errorf("while it waits the deadline is %s", w.last)
			}
			time.Sleep(time.Hour)
		})
		if !w.last.After(time.Now()) {
			t.Errorf("after it waited the deadline is %s", w.last)
		}
		if b, err := io.ReadAll(r.Body); len(b) != 10 || err != nil {
			t.Errorf("%d bytes, %v", len(b), err)
		}
	})
}

// TestBodyThatIsReadAfterTheAnswer: no deadline is set by what the server has taken back, and a
// request that comes later on the connection keeps its own.
func TestBodyThatIsReadAfterTheAnswer(t *testing.T) {
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	r := pace.Limit(w, httptest.NewRequest("POST", "http://h/", strings.NewReader("late")), pace.Stream)
	pace.End(r)
	next := time.Now().Add(time.Hour)
	w.last = next
	if b, err := io.ReadAll(r.Body); string(b) != "late" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if w.last != next {
		t.Errorf("the deadline is %s", w.last)
	}
}
