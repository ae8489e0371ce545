package cache_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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

// TestRoom: what nobody uses goes where something comes that does not fit, the one that was used
// longest ago first and no more than has to, with its contents; what is in use stays. So it is with
// contents that are fetched by their hashes and those of a place.
func TestRoom(t *testing.T) {
	for _, place := range []bool{false, true} {
		dir := smallDisk(t)
		c := open(t, dir, cache.Options{Bytes: 1 << 30})
		bring := func(name string, size int) *cache.Use {
			t.Helper()
			e := &elsewhere{files: map[string]string{"f": strings.Repeat(name, size)}, tags: map[string]string{"f": "1"}}
			src := newServer(t, e.files).source(name)
			var u *cache.Use
			var err error
			if place {
				u, err = c.GetPlace(t.Context(), e.place(name))
			} else {
				u, err = c.Get(t.Context(), src)
			}
			if err != nil {
				t.Fatal(err)
			}
			return u
		}
		age := func(u *cache.Use, hours int) {
			t.Helper()
			at := time.Now().Add(-time.Duration(hours) * time.Hour)
			if err := os.Chtimes(filepath.Dir(u.Dir), at, at); err != nil {
				t.Fatal(err)
			}
		}
		used, oldest, older, young := bring("u", 800_000), bring("o", 800_000), bring("p", 800_000), bring("y", 800_000)
		age(used, 4)
		age(oldest, 3)
		age(older, 2)
		for _, u := range []*cache.Use{oldest, older, young} {
			u.Close()
		}
		last := bring("l", 1_900_000)
		for u, want := range map[*cache.Use]bool{used: true, oldest: false, older: false, young: true, last: true} {
			if there(u.Dir) != want {
				t.Errorf("place %v: %s: there %v, want %v", place, u.Dir, there(u.Dir), want)
			}
		}
		c.Close()
		used.Close()
		last.Close()
	}
}

// TestFullAgain: when the disk is full although something should have fitted, what nobody uses goes
// and it is fetched once more.
func TestFullAgain(t *testing.T) {
	for _, place := range []bool{false, true} {
		c := open(t, t.TempDir(), cache.Options{})
		old := get(t, c, newServer(t, map[string]string{"old": "old"}).source("old"))
		n := 0
		full := func() error {
			if n++; n == 1 {
				old.Close()
				return &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
			}
			return nil
		}
		var u *cache.Use
		var err error
		if place {
			e := &elsewhere{files: some, tags: map[string]string{}}
			p := e.place("p")
			fetch := p.Fetch
			p.Fetch = func(ctx context.Context, want []int, to func(int) string) error {
				return errors.Join(fetch(ctx, want, to), full())
			}
			u, err = c.GetPlace(t.Context(), p)
		} else {
			src := newServer(t, some).source("new")
			fetch := src.Fetch
			src.Fetch = func(ctx context.Context, tr *berth.Tree, want []int, to func(int) string) error {
				return errors.Join(fetch(ctx, tr, want, to), full())
			}
			u, err = c.Get(t.Context(), src)
		}
		if err != nil {
			t.Fatalf("place %v: %v", place, err)
		}
		holds(t, u.Dir, some)
		if there(old.Dir) || n != 2 {
			t.Errorf("place %v: what nobody uses is there: %v; %d attempts", place, there(old.Dir), n)
		}
		u.Close()
	}
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
