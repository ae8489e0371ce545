package runner_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/cache"
)

// TestRoomForInputs: an input that does not go through the cache, and a copy of one that does, have
// the room that the cache takes for what nobody uses.
func TestRoomForInputs(t *testing.T) {
	text := strings.Repeat("x", 1_500_000)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(text)) }))
	defer s.Close()
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m")
	if errors.Is(err, syscall.EPERM) {
		t.Skip("only root can mount")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	c, err := cache.Open(filepath.Join(dir, "cache"), cache.Options{Bytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	bring := func(name string, size int) *cache.Use {
		t.Helper()
		u, err := c.GetPlace(t.Context(), cache.Place{
			Scope: name, Files: []cache.PlaceFile{{Path: name, Size: int64(size), Tag: "1"}},
			Fetch: func(_ context.Context, _ []int, to func(int) string) error {
				return os.WriteFile(to(0), []byte(text[:size]), 0o600)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	bring("old", 1_400_000).Close()
	bring("older", 1_400_000).Close()
	b := newBench(t, "wc -c <${{inputs.i}}")
	b.options.Dir, b.options.Cache = filepath.Join(dir, "task"), c
	b.launch.Inputs = map[string]berth.LaunchInput{"i": {Type: "uri_file", Mode: "Download", URL: s.URL + "/x"}}
	if exit := b.run(); !exit.OK() || b.log() != "1500000\n" {
		t.Errorf("%+v, log %q", exit, b.log())
	}
	if err := cache.RemoveAll(b.options.Dir); err != nil {
		t.Fatal(err)
	}
	bring("old", 1_400_000).Close()
	kept := bring("kept", 1_400_000)
	defer kept.Close()
	to := filepath.Join(dir, "copy")
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := kept.Copy(t.Context(), to); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(to, "kept")); err != nil || info.Size() != 1_400_000 {
		t.Error(info, err)
	}
}
