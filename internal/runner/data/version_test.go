package data_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/data"
)

// stranger is a web server with one large file in a folder, which it lists as blob storage does. It
// changes while the file is fetched: from the request change on, it has another version.
type stranger struct {
	change      int64
	tagged      bool // answers have a tag
	weak        bool // which is a weak one
	dated       bool
	listed      bool // so does the list
	deaf        bool // what a request demands is not looked at
	whole       bool // it knows no ranges
	cut         int64
	gets, parts atomic.Int64
}

const strangerSize = 10_000

func (s *stranger) version(n int64) (text, tag string, at time.Time) {
	v := byte('a')
	if s.change > 0 && n >= s.change {
		v = 'b'
	}
	tag, at = fmt.Sprintf(`"%c"`, v), time.Unix(1e9+int64(v)*10, 0)
	if s.weak {
		tag = "W/" + tag
	}
	return strings.Repeat(string(v), strangerSize), tag, at
}

func (s *stranger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("comp") == "list" {
		tag := ""
		if _, t, _ := s.version(0); s.listed {
			tag = strings.Trim(t, `"`) // as Azure has it
		}
		var b bytes.Buffer
		_ = xml.EscapeText(&b, []byte(tag))
		fmt.Fprintf(w, "<R><Blobs><Blob><Name>in/big</Name><Properties><Content-Length>%d</Content-Length><Etag>%s</Etag></Properties></Blob></Blobs></R>", strangerSize, &b)
		return
	}
	n := s.gets.Add(1)
	text, tag, at := s.version(n)
	if s.tagged {
		w.Header().Set("ETag", tag)
	}
	if !s.dated {
		at = time.Time{}
	}
	if r.Header.Get("If-Unmodified-Since") != "" { // the date has a fraction, which Last-Modified has not
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	if s.deaf {
		r.Header.Del("If-Match")
	}
	if s.whole {
		r.Header.Del("Range")
	}
	if r.Header.Get("Range") != "" {
		s.parts.Add(1)
	}
	if n == s.cut {
		w.Header().Set("Content-Length", fmt.Sprint(strangerSize))
		_, _ = w.Write([]byte(text[:300]))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	http.ServeContent(w, r, "", at, strings.NewReader(text))
}

// TestOneVersion: a large file of a web server is of one version, although it comes in pieces, or
// after it was cut: the version that the list names, or that of the first answer. Where nothing
// tells versions apart it comes as one.
func TestOneVersion(t *testing.T) {
	for name, tt := range map[string]struct {
		s             *stranger
		changed, once bool // once says that it comes in no pieces, in the end
	}{
		"tag":                        {s: &stranger{tagged: true}},
		"tag, changed":               {s: &stranger{tagged: true, change: 3}, changed: true},
		"tag, changed, deaf":         {s: &stranger{tagged: true, change: 3, deaf: true}, changed: true},
		"date":                       {s: &stranger{dated: true}},
		"date, changed":              {s: &stranger{dated: true, change: 3}, changed: true},
		"date, changed, deaf":        {s: &stranger{dated: true, change: 3, deaf: true}, changed: true},
		"weak and date, changed":     {s: &stranger{tagged: true, weak: true, dated: true, change: 3}, changed: true},
		"listed":                     {s: &stranger{tagged: true, listed: true}},
		"listed, changed before":     {s: &stranger{tagged: true, listed: true, change: 1}, changed: true},
		"nothing":                    {s: &stranger{}, once: true},
		"nothing, changed":           {s: &stranger{change: 3}, once: true},
		"weak":                       {s: &stranger{tagged: true, weak: true}, once: true},
		"no ranges":                  {s: &stranger{tagged: true, whole: true}, once: true},
		"listed, deaf, changed late": {s: &stranger{tagged: true, listed: true, deaf: true, change: 4}, changed: true},
	} {
		s := httptest.NewServer(tt.s)
		dir := t.TempDir()
		err := client(t).Folder(t.Context(), s.URL+"/account/container/in", dir, new(data.Total))
		s.Close()
		if tt.changed {
			if berth.CodeOf(err) != berth.Precondition {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		got, _ := os.ReadFile(filepath.Join(dir, "big"))
		if err != nil || len(got) != strangerSize || strings.Trim(string(got), string(got[:1])) != "" {
			t.Errorf("%s: %d bytes, %d of them a; %v", name, len(got), bytes.Count(got, []byte("a")), err)
		}
		if n := tt.s.parts.Load(); !tt.once && n != (strangerSize+255)/256 {
			t.Errorf("%s: %d pieces", name, n)
		}
	}
}

// TestCutWithNothing: a file of which nothing says that it is the same is begun again where it was
// cut, and not put together from two.
func TestCutWithNothing(t *testing.T) {
	s := httptest.NewServer(&stranger{cut: 1, change: 2})
	defer s.Close()
	path := filepath.Join(t.TempDir(), "f")
	if err := client(t).File(t.Context(), s.URL+"/f", path, new(data.Total)); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != strings.Repeat("b", strangerSize) {
		t.Errorf("%d bytes, %d of them a", len(got), bytes.Count(got, []byte("a")))
	}
}
