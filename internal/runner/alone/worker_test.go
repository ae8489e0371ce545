//go:build unix

package alone

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/berthml/berth"
)

// TestWorkerCloses: when close returns nothing is reported any more, although the server has not
// answered.
func TestWorkerCloses(t *testing.T) {
	asked := make(chan struct{}, 16)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else it is not seen when the other side goes
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer srv.Close()
	t.Setenv("TMPDIR", t.TempDir())
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	w, err := newWorker(t.Context(), berth.Launch{Task: "a.1", Home: berth.Home{URL: srv.URL}}, t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.options.Report(berth.Report{Task: "a.1", State: berth.TaskRunning, Phase: "running"})
	<-asked
	runtime.GOMAXPROCS(1) // what close did not wait for has not ended
	w.close()
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if strings.Contains(string(stacks), "runner.(*Reporter).Run") {
		t.Errorf("it still reports:\n%s", stacks)
	}
}
