package data_test

import (
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

// TestStalled: a server that stops in the middle of an answer, or of what it is sent, is asked once
// more, and is not waited for without end.
func TestStalled(t *testing.T) {
	c, err := data.New(data.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Shrink(8<<20, 1<<20, time.Millisecond)
	c.Stall(100 * time.Millisecond)
	var asked atomic.Int64
	var always atomic.Bool
	over := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hangs := asked.Add(1) == 1 || always.Load()
		if r.Method == http.MethodPut {
			if hangs {
				<-over // and reads nothing
			}
			w.WriteHeader(http.StatusCreated)
			return
		}
		if !hangs {
			http.ServeContent(w, r, "", time.Unix(1, 0), strings.NewReader("alpha"))
			return
		}
		w.Header().Set("Content-Length", "5")
		w.Header().Set("Last-Modified", time.Unix(1, 0).UTC().Format(http.TimeFormat))
		_, _ = w.Write([]byte("al"))
		w.(http.Flusher).Flush()
		<-over
	}))
	defer s.Close()
	defer close(over)
	var total data.Total
	to := filepath.Join(t.TempDir(), "x")
	if err := c.File(t.Context(), s.URL+"/c/x", to, &total); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(to); err != nil || string(got) != "alpha" || asked.Load() != 2 {
		t.Errorf("%q after %d requests, %v", got, asked.Load(), err)
	}
	always.Store(true)
	if err := c.File(t.Context(), s.URL+"/c/x", to, &total); berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "nothing was transferred for 100ms") {
		t.Errorf("a server that always stops: %v", err)
	}
	always.Store(false)
	asked.Store(0)
	d, err := data.OpenDir(folderOf(t, map[string]string{"big": strings.Repeat("x", 7<<20)}), "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := c.PutFile(t.Context(), d, "big", s.URL+"/c/big", &total); err != nil || asked.Load() != 2 {
		t.Errorf("after %d requests: %v", asked.Load(), err)
	}
}
