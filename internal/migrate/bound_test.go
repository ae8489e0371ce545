package migrate

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berthml/berth"
)

// listing starts a server that answers everything with a list of n times the same.
func listing(t *testing.T, name, each string, n int) *server {
	t.Helper()
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{%q:[`, name)
		for block := 1000; n > 0; n -= block {
			text := strings.Repeat(each+",", min(n, block))
			if n <= block {
				text = strings.TrimSuffix(text, ",")
			}
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
		}
		io.WriteString(w, `]}`)
	}))
	t.Cleanup(at.Close)
	s, err := Server(at.URL, "", nil, Patience)
	if err != nil {
		t.Fatal(err)
	}
	return s.(*server)
}

// TestLongHistory: the points of a server that sends all in one answer are handed on while they
// come, however long it is.
func TestLongHistory(t *testing.T) {
	for name, c := range map[string]struct {
		point string
		n     int
	}{
		"many":  {`{}`, 200_000},
		"large": {`{"key":"` + strings.Repeat("k", 10_000) + `"}`, 1 + maxAnswer/10_000},
	} {
		got, most := 0, 0
		err := listing(t, "metrics", c.point, c.n).History(t.Context(), &Run{}, "m", func(points []Metric) error {
			got, most = got+len(points), max(most, len(points)*max(100, len(c.point)))
			return nil
		})
		if err != nil || got != c.n || most > 8<<20 {
			t.Errorf("%s: %v, %d points, %d bytes at once", name, err, got, most)
		}
	}
}

// TestElementsAreBounded: an answer of few bytes with very many elements is refused before they
// are held.
func TestElementsAreBounded(t *testing.T) {
	const n = maxElements + 1
	lists := strings.Repeat(`{},`, maxElements) + `{}`
	for name, read := range map[string]func() error{
		"experiments": func() error {
			_, err := listing(t, "experiments", `{}`, n).Experiments(t.Context())
			return err
		},
		"tags of experiments": func() error {
			_, err := listing(t, "experiments", `{"tags":[`+strings.Repeat(`{},`, 1000)+`{}]}`, 1000).Experiments(t.Context())
			return err
		},
		"metrics of a run": func() (got error) {
			err := listing(t, "runs", `{"data":{"metrics":[`+lists+`]}}`, 1).Runs(t.Context(), "1", func(r *Run) error {
				got = r.Err
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			return got
		},
		"versions": func() (got error) {
			_, got = listing(t, "model_versions", `{"version":"1"}`, n).model(t.Context(), &pages{of: "registered models"}, []byte(`{}`))
			return got
		},
		"files": func() error {
			_, err := listing(t, "files", `{"path":"f"}`, n).Files(t.Context(), Owner{Run: "r"})
			return err
		},
		"a long point": func() error {
			return listing(t, "metrics", `{"key":"`+strings.Repeat("k", 2*maxPoint)+`"}`, 1).History(t.Context(), &Run{}, "m", func([]Metric) error { return nil })
		},
	} {
		if err := read(); berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), "more than 10") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestElements: the commas of lists are counted, and not those in objects and strings.
func TestElements(t *testing.T) {
	for text, want := range map[string]int{
		`{}`: 0, `[]`: 1, `[1,2]`: 2, `{"a":1,"b":[{"c":1,"d":","},"\",[",[]]}`: 4, `"[,"`: 0,
	} {
		if got := elements([]byte(text)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// TestUnlistedSizeIsBounded: a file that is listed without a size ends somewhere.
func TestUnlistedSizeIsBounded(t *testing.T) {
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	from := &body{s: &server{patience: Patience}, ctx: ctx, end: end, from: io.NopCloser(strings.NewReader("xy")), what: "the file f", left: Patience}
	f := &remoteFile{body: from, name: "f", size: unlisted, n: maxUnlisted - 1}
	one := make([]byte, 1)
	if n, err := f.Read(one); n != 1 || err != nil {
		t.Errorf("the last byte: %d, %v", n, err)
	}
	if _, err := f.Read(one); berth.CodeOf(err) != berth.Invalid || !leaves(err) || !strings.Contains(err.Error(), "more than 8 GiB, and the MLflow server lists no size") {
		t.Errorf("one more: %v", err)
	}
}
