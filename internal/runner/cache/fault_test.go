//go:build linux

package cache_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/cache"
)

// alter changes a file, and neither its size nor the time that it shows.
func alter(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	was, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for { // until the kernel's clock has moved on, which may stand still for some milliseconds
		if err := os.WriteFile(path, []byte(strings.ToUpper(string(b))), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, was.ModTime(), was.ModTime()); err != nil {
			t.Fatal(err)
		}
		if is, err := os.Stat(path); err != nil || changed(is) != changed(was) {
			return
		}
	}
}

func changed(info os.FileInfo) syscall.Timespec { return info.Sys().(*syscall.Stat_t).Ctim }

// TestAltered: a file of the cache that somebody changed is found, fetched again, and told.
func TestAltered(t *testing.T) {
	s := newServer(t, some)
	c := open(t, t.TempDir(), cache.Options{})
	u := get(t, c, s.source("v"))
	alter(t, filepath.Join(u.Dir, "a.py"))
	n := s.sent.Load()
	again := get(t, c, s.source("v"))
	holds(t, again.Dir, some)
	if len(again.Warnings) != 1 || !strings.Contains(again.Warnings[0], "a.py") {
		t.Errorf("told: %q", again.Warnings)
	}
	if s.sent.Load()-n != 1 {
		t.Errorf("%d files were sent", s.sent.Load()-n)
	}
	if quiet := get(t, c, s.source("v")); len(quiet.Warnings) != 0 || !quiet.Cached {
		t.Errorf("told again: %q", quiet.Warnings)
	}
}

// TestTouched: a file whose time changed and whose content did not is as good as before.
func TestTouched(t *testing.T) {
	s := newServer(t, some)
	s.share()
	c := open(t, t.TempDir(), cache.Options{})
	u := get(t, c, s.source("v"))
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(filepath.Join(u.Dir, "a.py"), later, later); err != nil {
		t.Fatal(err)
	}
	if again := get(t, c, s.source("v")); !again.Cached || len(again.Warnings) != 0 {
		t.Errorf("cached %v, told %q", again.Cached, again.Warnings)
	}
}

// TestRemoved: a file, or the manifest, that is missing from a tree has the tree fetched again.
func TestRemoved(t *testing.T) {
	for _, name := range []string{"files/a.py", "manifest", "state", "files/sub"} {
		s := newServer(t, some)
		c := open(t, t.TempDir(), cache.Options{})
		u := get(t, c, s.source("v"))
		if err := os.RemoveAll(filepath.Join(filepath.Dir(u.Dir), name)); err != nil {
			t.Fatal(err)
		}
		again := get(t, c, s.source("v"))
		holds(t, again.Dir, some)
		if len(again.Warnings) != 1 {
			t.Errorf("%s: told %q", name, again.Warnings)
		}
	}
}

// TestAlteredObject: an object of the server that was altered on the shared disk is never used
// again, not by a later runner either.
func TestAlteredObject(t *testing.T) {
	s := newServer(t, some)
	s.share()
	dir := t.TempDir()
	c := open(t, dir, cache.Options{})
	u := get(t, c, s.source("v"))
	alter(t, filepath.Join(u.Dir, "sub/b.py")) // a link: it is the object
	s.corrupt = true                           // the server sends what it has
	for range 2 {
		if _, err := c.Get(t.Context(), s.source("v")); berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "sub/b.py") {
			t.Fatalf("%v", err)
		}
		c = open(t, dir, cache.Options{})
	}
	s.corrupt = false
	s.share() // it was mended
	holds(t, get(t, c, s.source("v")).Dir, some)
}

// TestDeleted: the cache is deleted while trees are used; those who come next get theirs.
func TestDeleted(t *testing.T) {
	for _, shared := range []bool{true, false} {
		s := newServer(t, some)
		if shared {
			s.share()
		}
		dir := filepath.Join(t.TempDir(), "cache")
		c := open(t, dir, cache.Options{})
		get(t, c, s.source("v"))
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		holds(t, get(t, c, s.source("v")).Dir, some)
	}
}

// TestEvict: the tree that was used longest ago goes first, and none that is in use, not even by a
// command alone.
func TestEvict(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, cache.Options{Bytes: 300_000})
	bring := func(name string) (*cache.Use, string) {
		t.Helper()
		s := newServer(t, map[string]string{name: strings.Repeat(name, 100_000)})
		u, err := c.Get(t.Context(), s.source(name))
		if err != nil {
			t.Fatal(err)
		}
		return u, filepath.Dir(u.Dir)
	}
	age := func(tree string, hours int) {
		t.Helper()
		at := time.Now().Add(-time.Duration(hours) * time.Hour)
		if err := os.Chtimes(tree, at, at); err != nil {
			t.Fatal(err)
		}
	}
	a, inA := bring("a")
	b, inB := bring("b")
	cmd := exec.CommandContext(t.Context(), "cat")
	cmd.ExtraFiles = []*os.File{a.Hold()}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a.Close()
	b.Close()
	age(inA, 2)
	age(inB, 1)
	d, _ := bring("c")
	d.Close()
	c.Close() // it evicts in the background
	if !there(inA) || there(inB) {
		t.Errorf("in use: %v, used longest ago: %v", there(inA), there(inB))
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	age(inA, 24*8)
	if c.Evict(); there(inA) {
		t.Error("a tree that nobody used for a week is there")
	}
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestCopy: a copy is the task's own.
func TestCopy(t *testing.T) {
	s := newServer(t, some)
	s.share()
	c := open(t, t.TempDir(), cache.Options{})
	u := get(t, c, s.source("v"))
	dir := t.TempDir()
	if _, err := u.Copy(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	holds(t, dir, some)
	if err := os.WriteFile(filepath.Join(dir, "a.py"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	holds(t, u.Dir, some)
	if again := get(t, c, s.source("v")); !again.Cached || len(again.Warnings) != 0 {
		t.Errorf("told %q", again.Warnings)
	}
}

// TestProtect: a protected tree has no permission to write, and can be removed all the same.
func TestProtect(t *testing.T) {
	s := newServer(t, some)
	dir := t.TempDir()
	c := open(t, dir, cache.Options{Protect: true, Bytes: 1})
	u := get(t, c, s.source("v"))
	for _, name := range []string{"a.py", "sub", "."} {
		if info, err := os.Stat(filepath.Join(u.Dir, name)); err != nil || info.Mode().Perm()&0o222 != 0 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	c.Close()
	u.Close()
	if n := c.Evict(); n != 1 {
		t.Errorf("%d trees were removed", n)
	}
}

// TestLeftovers: what a process that was killed left in tmp goes when the cache is opened.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, cache.Options{})
	left := filepath.Join(dir, "tmp", "999999999-x-1")
	write(t, filepath.Join(left, "files", "a"), "half")
	open(t, dir, cache.Options{})
	if there(left) {
		t.Error("it is there still")
	}
}

// TestLongWork: what is being made stays however old it looks, and goes with its owner, also where
// another process has the number of that.
func TestLongWork(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, cache.Options{})
	s := newServer(t, some)
	src := s.source("v")
	fetch := src.Fetch
	src.Fetch = func(ctx context.Context, tr *berth.Tree, want []int, to func(int) string) error {
		old := time.Now().Add(-30 * 24 * time.Hour)
		made, err := filepath.Glob(filepath.Join(dir, "tmp", "*"))
		if err != nil || len(made) == 0 {
			t.Error(made, err)
		}
		for _, path := range made {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Error(err)
			}
		}
		other := open(t, dir, cache.Options{})
		other.Evict()
		c.Evict()
		return fetch(ctx, tr, want, to)
	}
	holds(t, get(t, c, src).Dir, some)
	owners, err := filepath.Glob(filepath.Join(dir, "owners", "*"))
	if err != nil || len(owners) != 2 {
		t.Fatal(owners, err)
	}
	// That of a process that was killed, whose number this one has.
	gone := fmt.Sprintf("%d-gone", os.Getpid())
	left := filepath.Join(dir, "tmp", gone+"-1")
	write(t, filepath.Join(left, "files", "a"), "half")
	write(t, filepath.Join(dir, "owners", gone), "")
	c.Close() // an eviction in the background may have it locked just now
	open(t, dir, cache.Options{})
	if there(left) || there(filepath.Join(dir, "owners", gone)) {
		t.Error("what a dead owner left is there")
	}
}

// TestEvictAnother: where another tree came to the place of the one that is evicted, that stays.
func TestEvictAnother(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, cache.Options{Bytes: 1})
	s := newServer(t, some)
	u := get(t, c, s.source("v"))
	place := filepath.Dir(u.Dir)
	c.Close()
	c.BeforeEviction(func() {
		aside := filepath.Join(t.TempDir(), "aside")
		if err := os.Rename(place, aside); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(place, "files", "new"), "new")
	})
	u.Close()
	if n := c.Evict(); n != 0 || !there(filepath.Join(place, "files", "new")) {
		t.Errorf("%d were evicted; the other one is there: %v", n, there(place))
	}
}

// TestEvictLinks: a tree that consists of the server's own contents keeps them for a day after its
// last use, and never while it is used; one of copies stays for a week.
func TestEvictLinks(t *testing.T) {
	for _, shared := range []bool{true, false} {
		c := open(t, t.TempDir(), cache.Options{})
		bring := func(name string) *cache.Use {
			s := newServer(t, map[string]string{name: name})
			if shared {
				s.share()
			}
			return get(t, c, s.source(name))
		}
		age := func(u *cache.Use, hours int) {
			at := time.Now().Add(-time.Duration(hours) * time.Hour)
			if err := os.Chtimes(filepath.Dir(u.Dir), at, at); err != nil {
				t.Fatal(err)
			}
		}
		used, young, old := bring("used"), bring("young"), bring("old")
		c.Close() // no eviction is under way
		young.Close()
		old.Close()
		age(used, 25)
		age(young, 23)
		age(old, 25)
		c.Evict()
		if !there(used.Dir) || !there(young.Dir) || there(old.Dir) != !shared {
			t.Errorf("shared %v: used %v, young %v, old %v", shared, there(used.Dir), there(young.Dir), there(old.Dir))
		}
	}
}
