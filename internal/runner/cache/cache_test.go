package cache_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/cache"
)

// A server has folders, and maybe a disk that the node sees.
type server struct {
	t       testing.TB
	files   map[string]string
	objects string
	asked   atomic.Int64 // for manifests
	sent    atomic.Int64 // files
	corrupt bool         // what it sends is not what the manifest says
	fail    error
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func newServer(t *testing.T, files map[string]string) *server {
	return &server{t: t, files: files}
}

// share puts the contents on a disk that the node sees too.
func (s *server) share() {
	s.t.Helper()
	s.objects = filepath.Join(s.t.TempDir(), "objects")
	for _, text := range s.files {
		h := hash(text)
		write(s.t, filepath.Join(s.objects, h[:2], h[2:]), text)
	}
}

func (s *server) manifest() []byte {
	var t berth.Tree
	b := t.AppendHead(nil)
	names := slices.Collect(func(yield func(string) bool) {
		for n := range s.files {
			if !yield(n) {
				return
			}
		}
	})
	slices.Sort(names)
	for _, n := range names {
		f := berth.TreeFile{Path: n, Size: int64(len(s.files[n])), Mode: 0o600, Hash: hash(s.files[n])}
		b = f.AppendFile(b)
	}
	return t.AppendEnd(b, len(names))
}

func (s *server) source(name string) cache.Source {
	return cache.Source{
		Name: name, Objects: s.objects,
		Manifest: func(context.Context) ([]byte, error) {
			s.asked.Add(1)
			return s.manifest(), nil
		},
		Fetch: func(_ context.Context, t *berth.Tree, want []int, to func(int) string) error {
			for _, i := range want {
				s.sent.Add(1)
				text := s.files[t.Files[i].Path]
				if s.corrupt {
					text = strings.ToUpper(text)
				}
				if err := os.WriteFile(to(i), []byte(text), 0o600); err != nil {
					return err
				}
			}
			return s.fail
		},
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string, o cache.Options) *cache.Cache {
	t.Helper()
	c, err := cache.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func get(t *testing.T, c *cache.Cache, src cache.Source) *cache.Use {
	t.Helper()
	u, err := c.Get(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return u
}

func holds(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, want := range files {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

var some = map[string]string{"a.py": "print(1)", "sub/b.py": "print(2)", "sub/deep/c": "", "same": "print(1)", "odd name\n😀": "x"}

// TestGet: a tree comes once, whether its contents are on this disk or come from a server, and only
// what is not here comes.
func TestGet(t *testing.T) {
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprint("shared disk ", shared), func(t *testing.T) {
			s := newServer(t, some)
			if shared {
				s.share()
			}
			c := open(t, t.TempDir(), cache.Options{})
			u := get(t, c, s.source("v1"))
			holds(t, u.Dir, some)
			if u.Cached || u.Linked != shared || s.asked.Load() != 1 {
				t.Errorf("cached %v, linked %v, asked %d times", u.Cached, u.Linked, s.asked.Load())
			}
			if want := int64(4); !shared && s.sent.Load() != want || shared && s.sent.Load() != 0 {
				t.Errorf("%d files were sent", s.sent.Load())
			}
			again := get(t, c, s.source("v1"))
			if !again.Cached || again.Dir != u.Dir || s.asked.Load() != 1 {
				t.Errorf("cached %v, asked %d times", again.Cached, s.asked.Load())
			}
			holds(t, again.Dir, some)
			// One file changes: the others are here.
			s.files = map[string]string{"a.py": "print(3)", "sub/b.py": "print(2)"}
			if shared {
				s.share()
			}
			before := s.sent.Load()
			next := get(t, c, s.source("v2"))
			holds(t, next.Dir, s.files)
			if n := s.sent.Load() - before; !shared && n != 1 {
				t.Errorf("%d files were sent for one that changed", n)
			}
			holds(t, u.Dir, some)
		})
	}
}

// TestNoName: without a word for its version a folder's manifest is asked for each time, and its
// content is not.
func TestNoName(t *testing.T) {
	s := newServer(t, some)
	c := open(t, t.TempDir(), cache.Options{})
	get(t, c, s.source(""))
	n := s.sent.Load()
	if u := get(t, c, s.source("")); !u.Cached || s.asked.Load() != 2 || s.sent.Load() != n {
		t.Errorf("cached %v, asked %d times, %d files sent again", u.Cached, s.asked.Load(), s.sent.Load()-n)
	}
}

// TestTogether: many tasks that want the same tree bring it once.
func TestTogether(t *testing.T) {
	s := newServer(t, some)
	c := open(t, t.TempDir(), cache.Options{})
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			u, err := c.Get(t.Context(), s.source("v"))
			if err != nil {
				t.Error(err)
				return
			}
			defer u.Close()
			holds(t, u.Dir, some)
		})
	}
	group.Wait()
	if s.sent.Load() != 4 {
		t.Errorf("%d files were sent", s.sent.Load())
	}
}

// TestCorrupt: what does not arrive as the manifest says is not used, and not kept.
func TestCorrupt(t *testing.T) {
	s := newServer(t, some)
	s.corrupt = true
	c := open(t, t.TempDir(), cache.Options{})
	if _, err := c.Get(t.Context(), s.source("v")); berth.CodeOf(err) != berth.Unavailable {
		t.Fatal(err)
	}
	s.corrupt = false
	holds(t, get(t, c, s.source("v")).Dir, some)
}

// TestInterrupted: a fetch that fails leaves nothing that would be taken for the tree.
func TestInterrupted(t *testing.T) {
	s := newServer(t, some)
	s.fail = errors.New("the line is down")
	dir := t.TempDir()
	c := open(t, dir, cache.Options{})
	if _, err := c.Get(t.Context(), s.source("v")); !errors.Is(err, s.fail) {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	s.fail = nil
	holds(t, get(t, c, s.source("v")).Dir, some)
}

// TestLyingNames: names that cannot be files beside each other are refused with the name.
func TestLyingNames(t *testing.T) {
	long := strings.Repeat("n", 300)
	for what, files := range map[string]map[string]string{
		"file and folder": {"a": "1", "a/b": "2"},
		"a long name":     {long: "1"},
		"a long folder":   {long + "/x": "1"},
	} {
		for _, shared := range []bool{true, false} {
			s := newServer(t, files)
			if shared {
				s.share()
			}
			c := open(t, t.TempDir(), cache.Options{})
			if _, err := c.Get(t.Context(), s.source("v")); berth.CodeOf(err) != berth.Invalid {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

// TestCaseOnly: names that differ in case only are two files where the file system says so.
func TestCaseOnly(t *testing.T) {
	s := newServer(t, map[string]string{"Readme": "1", "README": "2"})
	c := open(t, t.TempDir(), cache.Options{})
	u, err := c.Get(t.Context(), s.source("v"))
	if berth.CodeOf(err) == berth.Invalid {
		return // a file system that takes them for one
	}
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	holds(t, u.Dir, s.files)
}
