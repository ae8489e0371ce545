package data_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/data"
)

// TestCutWeak: a file with a weak tag goes on where it was cut, which If-Match would refuse, as
// long as it is the same file.
func TestCutWeak(t *testing.T) {
	text := strings.Repeat("abcdefgh", 1000)
	for _, tt := range []struct {
		name              string
		tags              [2]string
		later             time.Duration
		dated, unchanging bool
	}{
		{name: "same", tags: [2]string{`W/"1"`, `W/"1"`}, dated: true, unchanging: true},
		{name: "no date", tags: [2]string{`W/"1"`, `W/"1"`}, unchanging: true},
		{name: "only a date", dated: true, unchanging: true},
		{name: "another tag", tags: [2]string{`W/"1"`, `W/"2"`}},
		{name: "written to", tags: [2]string{`W/"1"`, `W/"1"`}, later: time.Hour, dated: true},
	} {
		asked := 0
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			at := time.Time{}
			if tt.dated {
				at = time.Unix(1e9, 0)
			}
			if tag := tt.tags[min(asked, 1)]; tag != "" {
				w.Header().Set("ETag", tag)
			}
			if asked++; asked == 1 {
				if tt.dated {
					w.Header().Set("Last-Modified", at.UTC().Format(http.TimeFormat))
				}
				w.Header().Set("Content-Length", "8000")
				_, _ = w.Write([]byte(text[:300]))
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
			if r.Header.Get("Range") != "bytes=300-" {
				t.Errorf("%s: range %q", tt.name, r.Header.Get("Range"))
			}
			http.ServeContent(w, r, "f", at.Add(tt.later), bytes.NewReader([]byte(text)))
		}))
		path := filepath.Join(t.TempDir(), "f")
		err := client(t).File(t.Context(), s.URL+"/f", path, new(data.Total))
		s.Close()
		if !tt.unchanging {
			if berth.CodeOf(err) != berth.Precondition {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if got, _ := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%s: %d bytes, %v", tt.name, len(got), err)
		}
	}
}
