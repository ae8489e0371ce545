package cache_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/cache"
)

// smallDisk is a file system of a few megabytes.
func smallDisk(t *testing.T) string {
	t.Helper()
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
	return filepath.Join(dir, "cache")
}

// TestDiskFullMidway: a folder that does not fit fails with the reason, leaves nothing behind, and
// takes nothing from those that are there; the next one that fits is brought. Both ways: contents
// that are fetched, and those of the server's disk, which is another file system.
func TestDiskFullMidway(t *testing.T) {
	large := map[string]string{}
	for i := range 80 {
		large[fmt.Sprintf("part%d/file", i)] = strings.Repeat(fmt.Sprintf("%06d", i), 20_000)
	}
	for _, shared := range []bool{false, true} {
		dir := smallDisk(t)
		c := open(t, dir, cache.Options{})
		first, second, third := newServer(t, some), newServer(t, large), newServer(t, map[string]string{"next": "small"})
		if shared {
			first.share()
			second.share()
			third.share()
		}
		u := get(t, c, first.source("first"))
		_, err := c.Get(t.Context(), second.source("large"))
		if berth.CodeOf(err) != berth.Unavailable || !strings.Contains(fmt.Sprint(err), "the disk of the node is full") {
			t.Errorf("shared %v: %v", shared, err)
		}
		if left, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil || len(left) > 0 {
			t.Errorf("shared %v: left in tmp: %v, %v", shared, left, err)
		}
		holds(t, u.Dir, some)
		if again := get(t, c, first.source("first")); !again.Cached {
			t.Errorf("shared %v: the folder that was there was brought again", shared)
		}
		holds(t, get(t, c, third.source("third")).Dir, third.files)
	}
}
