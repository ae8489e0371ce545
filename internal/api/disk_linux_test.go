package api_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDiskFull: while the server cannot keep what happens it says so of jobs that are under way,
// and of itself.
func TestDiskFull(t *testing.T) {
	dir, err := os.MkdirTemp("", "small")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skip("no tmpfs can be mounted here:", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("TMPDIR", dir)
	x := open(t)
	job := props("jobType", "Command", "command", "true")
	x.do("PUT", x.ws+"/jobs/early", job).want(201)
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 16<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	// The database may have room of its own for a while; runners that share the disk have none.
	const early = "runners on this machine cannot keep what happens: the disk that holds "
	if got := x.do("GET", "/berth/v1/server", nil).want(200).at("trouble"); !strings.HasPrefix(fmt.Sprint(got), early) {
		t.Errorf("before the database is full the trouble is %q", got)
	}
	full := false
	for i := 0; i < 1000 && !full; i++ {
		a := x.do("PUT", fmt.Sprint(x.ws, "/jobs/late", i), props("jobType", "Command", "command", strings.Repeat("x", 10_000)))
		full = a.status == 503
	}
	if !full {
		t.Fatal("everything was kept")
	}
	const want = "the server cannot keep what happens: the disk that holds "
	if got := x.do("GET", x.ws+"/jobs/early/explain", nil).want(200).at("reason"); !strings.HasPrefix(fmt.Sprint(got), want) {
		t.Errorf("the reason is %v", got)
	}
	if got := x.do("GET", "/berth/v1/server", nil).want(200).at("trouble"); !strings.HasPrefix(fmt.Sprint(got), want) {
		t.Errorf("the trouble is %v", got)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	x.do("PUT", x.ws+"/jobs/after", job).want(201)
	if got := x.do("GET", "/berth/v1/server", nil).want(200).at("trouble"); got != "" {
		t.Errorf("with space again the trouble is %v", got)
	}
}
