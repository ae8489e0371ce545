//go:build linux

package cache_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/cache"
)

// TestAlteredContent: a content of the cache that is not what its name says is not put into another
// tree.
func TestAlteredContent(t *testing.T) {
	s := newServer(t, some)
	dir := t.TempDir()
	c := open(t, dir, cache.Options{})
	get(t, c, s.source("v1"))
	h := hash(some["sub/b.py"])
	alter(t, filepath.Join(dir, "content", h[:2], h[2:]))
	s.files = maps.Clone(some)
	s.files["new"] = "file"
	holds(t, get(t, c, s.source("v2")).Dir, s.files)
}

// TestProtectedTreesAreCopies: where only permissions protect a tree, the server's objects are not
// in it, and are left as they are.
func TestProtectedTreesAreCopies(t *testing.T) {
	s := newServer(t, some)
	s.share()
	c := open(t, t.TempDir(), cache.Options{Protect: true})
	u := get(t, c, s.source("v"))
	holds(t, u.Dir, some)
	if s.sent.Load() != 0 || u.Linked {
		t.Errorf("%d files were sent, linked: %v", s.sent.Load(), u.Linked)
	}
	for _, text := range some {
		h := hash(text)
		info, err := os.Stat(filepath.Join(s.objects, h[:2], h[2:]))
		if err != nil || info.Mode().Perm() != 0o600 || info.Sys().(*syscall.Stat_t).Nlink != 1 {
			t.Errorf("an object: %v, %v", info.Mode(), err)
		}
	}
}

// TestManyFindItAltered: tasks that find the same altered tree at once get a good one, which is
// fetched once.
func TestManyFindItAltered(t *testing.T) {
	s := newServer(t, some)
	dir := t.TempDir()
	c := open(t, dir, cache.Options{})
	u := get(t, c, s.source("v"))
	for range 5 {
		alter(t, filepath.Join(u.Dir, "sub/b.py"))
		before := s.sent.Load()
		var group sync.WaitGroup
		uses := make([]*cache.Use, 16)
		for i := range uses {
			group.Go(func() {
				var err error
				if uses[i], err = c.Get(t.Context(), s.source("v")); err != nil {
					t.Error(err)
					return
				}
				holds(t, uses[i].Dir, some)
			})
		}
		group.Wait()
		if t.Failed() {
			return
		}
		if n := s.sent.Load() - before; n != 1 {
			t.Errorf("%d files were sent for one that was altered", n)
		}
		u = uses[0]
		for _, x := range uses {
			x.Close()
		}
	}
}

// TestAlteredAndNoTmp: a tree that was altered is not used although there is no place to move it
// to.
func TestAlteredAndNoTmp(t *testing.T) {
	s := newServer(t, some)
	dir := t.TempDir()
	c := open(t, dir, cache.Options{})
	u := get(t, c, s.source("v"))
	alter(t, filepath.Join(u.Dir, "sub/b.py"))
	if err := os.RemoveAll(filepath.Join(dir, "tmp")); err != nil {
		t.Fatal(err)
	}
	holds(t, get(t, c, s.source("v")).Dir, some)
}

// TestAlteredLargeTree: a tree is looked at before each use however large it is.
func TestAlteredLargeTree(t *testing.T) {
	files := map[string]string{}
	for i := range 4200 {
		files[fmt.Sprintf("d%d/f%d", i/100, i)] = fmt.Sprint("text ", i)
	}
	s := newServer(t, files)
	s.share()
	c := open(t, t.TempDir(), cache.Options{})
	u := get(t, c, s.source("v"))
	get(t, c, s.source("v"))
	path := filepath.Join(u.Dir, "d7/f700")
	if err := os.Remove(path); err != nil { // not the object: that is the server's
		t.Fatal(err)
	}
	write(t, path, "TEXT 700")
	again := get(t, c, s.source("v"))
	holds(t, again.Dir, files)
	if len(again.Warnings) != 1 {
		t.Errorf("warnings %q", again.Warnings)
	}
}

// TestAnothersFailure: who waits for a tree that somebody else cannot bring brings it.
func TestAnothersFailure(t *testing.T) {
	s := newServer(t, some)
	c := open(t, t.TempDir(), cache.Options{})
	begun, fail := make(chan struct{}), make(chan struct{})
	denied := s.source("bob")
	denied.Fetch = func(context.Context, *berth.Tree, []int, func(int) string) error {
		close(begun)
		<-fail
		return berth.Errorf(berth.Denied, "bob may not read it")
	}
	var group sync.WaitGroup
	group.Go(func() {
		if _, err := c.Get(t.Context(), denied); berth.CodeOf(err) != berth.Denied {
			t.Errorf("bob: %v", err)
		}
	})
	<-begun
	good := s.source("ann")
	asked := good.Manifest
	good.Manifest = func(ctx context.Context) ([]byte, error) {
		defer close(fail)
		return asked(ctx)
	}
	u, err := c.Get(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	holds(t, u.Dir, some)
	group.Wait()
}

// TestFolderBecameAnother: a folder of a tree that something else took the place of has the tree
// fetched again: a file, a link to nowhere, or a link to a folder with files of the same names.
func TestFolderBecameAnother(t *testing.T) {
	elsewhere := t.TempDir()
	for name, text := range some {
		if name, ok := strings.CutPrefix(name, "sub/"); ok {
			write(t, filepath.Join(elsewhere, name), strings.ToUpper(text))
		}
	}
	for what, replace := range map[string]func(dir string) error{
		"a file":            func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"a link to nowhere": func(dir string) error { return os.Symlink("nowhere", dir) },
		"a link elsewhere":  func(dir string) error { return os.Symlink(elsewhere, dir) },
	} {
		s := newServer(t, some)
		s.share()
		c := open(t, t.TempDir(), cache.Options{})
		sub := filepath.Join(get(t, c, s.source("v")).Dir, "sub")
		if err := os.RemoveAll(sub); err != nil {
			t.Fatal(err)
		}
		if err := replace(sub); err != nil {
			t.Fatal(err)
		}
		again, err := c.Get(t.Context(), s.source("v"))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		holds(t, again.Dir, some)
		if len(again.Warnings) != 1 {
			t.Errorf("%s: told %q", what, again.Warnings)
		}
		again.Close()
	}
}

// TestEarlyUses: those who use a large tree before it is checked find out together that it was
// altered, and the next one gets a good one.
func TestEarlyUses(t *testing.T) {
	s := newServer(t, some)
	dir := t.TempDir()
	c := open(t, dir, cache.Options{CheckFirst: 1})
	src := s.source("v")
	src.Early = true
	if u := get(t, c, src); u.Early || u.Files != len(some) {
		t.Errorf("the first: %+v", u)
	}
	asked := s.asked.Load()
	good := get(t, c, src)
	if wrong, err := good.Check(t.Context()); !good.Early || wrong != "" || err != nil || good.Tree == nil {
		t.Errorf("it is good: %q, %v, %+v", wrong, err, good)
	}
	var uses []*cache.Use
	for range 8 {
		uses = append(uses, get(t, c, src))
	}
	alter(t, filepath.Join(uses[0].Dir, "sub/b.py"))
	var group sync.WaitGroup
	for _, u := range uses {
		group.Go(func() {
			if wrong, err := u.Check(t.Context()); err != nil || wrong == "" {
				t.Errorf("an altered tree: %q, %v", wrong, err)
			}
		})
	}
	group.Wait()
	again := get(t, c, src)
	holds(t, again.Dir, some)
	if again.Early || s.asked.Load() != asked+1 {
		t.Errorf("it was not fetched again, or %d times", s.asked.Load()-asked)
	}
	if wrong, err := uses[0].Check(t.Context()); err != nil || wrong == "" {
		t.Errorf("one that uses what was discarded: %q, %v", wrong, err)
	}
	if wrong, err := c.Recheck(t.Context(), again.Key); err != nil || wrong != "" {
		t.Errorf("the new one: %q, %v", wrong, err)
	}
	again.Close()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if wrong, err := c.Recheck(t.Context(), again.Key); err != nil || wrong == "" {
		t.Errorf("one that is gone: %q, %v", wrong, err)
	}
}

// TestEarlyAfterRestart: copies that were written before the machine last started are checked
// first.
func TestEarlyAfterRestart(t *testing.T) {
	s := newServer(t, some)
	c := open(t, t.TempDir(), cache.Options{CheckFirst: 1})
	src := s.source("v")
	src.Early = true
	u := get(t, c, src)
	path := filepath.Join(filepath.Dir(u.Dir), "summary")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Skip(err)
	}
	id := strings.TrimSpace(string(boot))
	if !strings.Contains(string(text), id) {
		t.Fatalf("the summary does not say when contents were written: %s", text)
	}
	write(t, path, strings.ReplaceAll(string(text), id, "earlier"))
	if u := get(t, c, src); u.Early || !u.Cached {
		t.Errorf("it was not checked first: %+v", u)
	}
	if u := get(t, c, src); !u.Early {
		t.Errorf("it is checked first for ever: %+v", u)
	}
}
