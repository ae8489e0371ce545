package runner_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
)

// TestCutSent: lines that a crash cut in the file of what was sent, or that are no names, are
// passed over: what the others name is not sent again, and the rest is.
func TestCutSent(t *testing.T) {
	var mu sync.Mutex
	var put []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodPut {
			put = append(put, path.Base(r.URL.Path))
		}
		w.WriteHeader(http.StatusCreated)
	}))
	defer s.Close()
	b := newBench(t, "exit 1")
	b.launch.Outputs = map[string]berth.LaunchOutput{"o": {Type: "uri_folder", URL: s.URL + "/account/container/o"}}
	b.options.Last = runner.Mark{Step: runner.StepExited, Exit: &berth.Exit{}}
	out := filepath.Join(b.options.Dir, "outputs", "o")
	if err := os.MkdirAll(out, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cut", "last", "long", "new", "sent", "unknown"} {
		if err := os.WriteFile(filepath.Join(out, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	label := berth.OutputLabel("o") + "/"
	text := "\n+\n+" + label + "cu+" + label + "t\n?" + label + "unknown\n+" + strings.Repeat("x", 1<<20) + "\n" +
		"+" + label + strings.Repeat("./", 20_000) + "long\n+" + label + "sent\n\n+" + label + "last"
	if err := os.WriteFile(b.options.Dir+runner.SentSuffix, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if exit := b.run(); !exit.OK() {
		t.Errorf("%+v", exit)
	}
	slices.Sort(put)
	if want := []string{"cut", "last", "long", "new", "unknown"}; !slices.Equal(put, want) {
		t.Errorf("sent %q, want %q", put, want)
	}
}
