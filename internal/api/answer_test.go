package api

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berthml/berth"
)

// zeros is without end.
type zeros struct{ read int }

func (z *zeros) Read(p []byte) (int, error) {
	z.read += len(p)
	if z.read > 8<<20 {
		return 0, io.EOF // for a server that takes all of it
	}
	clear(p)
	return len(p), nil
}

// TestTemplateAnswer: a template's calls to the server read so much and no more, and an answer that
// breaks off is an error.
func TestTemplateAnswer(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/log", nil)
	take := func(h http.HandlerFunc) (*answer, error) {
		a := &answer{header: http.Header{}}
		return a, a.take(h, r)
	}
	z := &zeros{}
	a, err := take(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := io.Copy(w, z); err != nil {
			panic(http.ErrAbortHandler)
		}
	})
	if berth.CodeOf(err) != berth.Limit || a.body.Len() > maxAnswer || z.read > 2*maxAnswer {
		t.Errorf("%v; %d bytes were kept and %d read", err, a.body.Len(), z.read)
	}
	if a, err := take(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("x", maxAnswer)) }); err != nil || a.body.Len() != maxAnswer {
		t.Errorf("%v; %d bytes", err, a.body.Len())
	}
	if _, err := take(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }); berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("%v", err)
	}
}
