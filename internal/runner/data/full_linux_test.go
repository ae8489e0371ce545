package data_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/data"
)

// TestDiskFull: a disk of this machine that is full is told as that, with the file, its size and
// where it was to go, is not taken for storage that does not answer, and is not tried again.
func TestDiskFull(t *testing.T) {
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Length", "5")
		fmt.Fprint(w, "words")
	}))
	defer s.Close()
	c := client(t)
	o := c.Outside(&berth.Outside{Protocol: berth.OutsideAzure, Datastore: "lake", At: "data/in"}, func(_ context.Context, _ string, rs []berth.OutsideRequest) ([]string, error) {
		return []string{s.URL + "/" + rs[0].Name}, nil
	})
	to := func(int) string { return "/dev/full" }
	for name, fetch := range map[string]func() error{
		"a.bin": func() error {
			return o.Fetch(t.Context(), []data.Object{{Path: "a.bin", Size: 5}}, []int{0}, to)
		},
		"full": func() error { return c.File(t.Context(), s.URL+"/st/container/x", "/dev/full", new(data.Total)) },
	} {
		asked.Store(0)
		err := fetch()
		text := fmt.Sprint(err)
		if !errors.Is(err, syscall.ENOSPC) || berth.CodeOf(err) != berth.Unavailable || !strings.Contains(text, name+": the node's disk is full: ") || !strings.Contains(text, "in /dev") || strings.Contains(text, "does not answer") {
			t.Errorf("%s: %v", name, err)
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("%s: asked %d times", name, n)
		}
		if name == "a.bin" && !strings.Contains(text, "its 5 bytes") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
