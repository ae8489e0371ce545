package blob_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/store"
)

// far keeps contents in a folder. Its hooks are called when a content was put, and before one is
// deleted.
type far struct {
	dir string

	mu       sync.Mutex
	away     error
	put      func(hash string)
	deleting func(hash string)
	puts     int
}

func (f *far) trouble() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.away
}

func (f *far) setAway(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = err
}

func (f *far) Put(_ context.Context, hash string, from *os.File) error {
	if err := f.trouble(); err != nil {
		return err
	}
	text, err := io.ReadAll(from)
	if err == nil {
		err = os.WriteFile(filepath.Join(f.dir, hash), text, 0o600)
	}
	f.mu.Lock()
	hook := f.put
	f.put = nil
	f.puts++
	f.mu.Unlock()
	if hook != nil {
		hook(hash)
	}
	return err
}

func (f *far) Get(_ context.Context, hash, path string) error {
	if err := f.trouble(); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(f.dir, hash))
	if errors.Is(err, fs.ErrNotExist) {
		return berth.Errorf(berth.NotFound, "there is no content %s", hash)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

func (f *far) Modified(_ context.Context, hash string) (time.Time, error) {
	info, err := os.Stat(filepath.Join(f.dir, hash))
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, berth.Errorf(berth.NotFound, "there is no content %s", hash)
	}
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

func (f *far) Delete(_ context.Context, hash string) error {
	f.mu.Lock()
	hook := f.deleting
	f.deleting = nil
	f.mu.Unlock()
	if hook != nil {
		hook(hash)
	}
	return os.Remove(filepath.Join(f.dir, hash))
}

func (f *far) List(_ context.Context, shard string, each func(hash string, size int64, modified time.Time) error) error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		if strings.HasPrefix(e.Name(), shard) {
			if err := each(e.Name(), info.Size(), info.ModTime()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *far) count(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// openFar makes contents elsewhere, and what opens stores over them with directories of their own.
func openFar(t *testing.T) (*far, func(cache int64) *blob.Store) {
	t.Helper()
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "berth.db"), store.Options{NoSync: true, Rehearse: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	f := &far{dir: t.TempDir()}
	return f, func(cache int64) *blob.Store {
		s, err := blob.OpenRemote(t.TempDir(), db, f, cache)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
}

// TestContentsElsewhere: all that was acknowledged is there for a server that begins with an empty
// disk, however it was written.
func TestContentsElsewhere(t *testing.T) {
	f, server := openFar(t)
	s := server(1 << 30)
	large := strings.Repeat("large ", 100_000)
	put(t, s, "small", "small")
	put(t, s, "large", large)
	put(t, s, "empty", "")
	put(t, s, "again", "small")
	if err := s.PutMany(t.Context(), "box", []blob.Packed{{Name: "p/1", Data: []byte("one")}, {Name: "p/2", Data: []byte("one")}, {Name: "p/3", Data: []byte("small")}}); err != nil {
		t.Fatal(err)
	}
	if err := s.PutBlock(t.Context(), "box", "parts", "1", strings.NewReader("part")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CommitBlocks(t.Context(), "box", "parts", []string{"1", "1"}, blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if f.puts != 5 {
		t.Errorf("%d contents were sent, of 5", f.puts)
	}
	fresh := server(1 << 30)
	for name, want := range map[string]string{"small": "small", "large": large, "empty": "", "again": "small", "p/1": "one", "p/2": "one", "p/3": "small", "parts": "partpart"} {
		if got := read(t, fresh, name); got != want {
			t.Errorf("%s is %.20q", name, got)
		}
	}
	if s.Objects() != "" {
		t.Error("nodes are told to read contents from a directory that does not have all of them")
	}
}

// TestStorageAway: what cannot be kept is refused with the reason and has no name; what was kept is
// there when the storage is back.
func TestStorageAway(t *testing.T) {
	f, server := openFar(t)
	s := server(1 << 30)
	put(t, s, "kept", "kept")
	f.setAway(berth.Errorf(berth.Unavailable, "the storage does not answer"))
	fresh := server(1 << 30)
	if _, err := fresh.Open(t.Context(), "box", "kept"); berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "the storage does not answer") {
		t.Error(err)
	}
	if _, err := s.Put(t.Context(), "box", "new", strings.NewReader("new"), blob.PutOptions{}); berth.CodeOf(err) != berth.Unavailable {
		t.Error(err)
	}
	if _, err := s.Stat(t.Context(), "box", "new"); berth.CodeOf(err) != berth.NotFound {
		t.Errorf("what was not kept has a name: %v", err)
	}
	f.setAway(nil)
	if got := read(t, fresh, "kept"); got != "kept" {
		t.Error(got)
	}
	put(t, s, "new", "new")
	if got := read(t, fresh, "new"); got != "new" {
		t.Error(got)
	}
}

// TestAlteredElsewhere: a content that is not what its name says is not given out.
func TestAlteredElsewhere(t *testing.T) {
	f, server := openFar(t)
	b := put(t, server(1<<30), "x", "true")
	if err := os.WriteFile(filepath.Join(f.dir, b.Hash), []byte("lies"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := server(1<<30).Open(t.Context(), "box", "x"); err == nil || !strings.Contains(err.Error(), "was altered") {
		t.Error(err)
	}
}

// TestRemovedElsewhere: contents without a name are removed, and are sent again by a server that
// still has them in its directory.
func TestRemovedElsewhere(t *testing.T) {
	f, server := openFar(t)
	a, b := server(1<<30), server(1<<30)
	put(t, a, "x", "content")
	put(t, a, "y", "other")
	if read(t, b, "x") != "content" {
		t.Fatal("b does not have it")
	}
	if err := a.Delete(t.Context(), "box", "x"); err != nil {
		t.Fatal(err)
	}
	if st, err := a.GC(t.Context(), time.Hour); err != nil || f.count(t) != 2 {
		t.Fatalf("what is young was removed: %+v, %v", st, err)
	}
	if st, err := a.GC(t.Context(), 0); err != nil || f.count(t) != 1 {
		t.Fatalf("%d contents are left: %+v, %v", f.count(t), st, err)
	}
	put(t, b, "x", "content")
	if got := read(t, server(1<<30), "x"); got != "content" {
		t.Error(got)
	}
}

// TestRemovalMeetsUpload: an upload of a content that is removed at the same moment is not lost,
// wherever it is when that happens.
func TestRemovalMeetsUpload(t *testing.T) {
	for _, when := range []string{"after the content was sent", "while the content is deleted"} {
		t.Run(when, func(t *testing.T) {
			f, server := openFar(t)
			a, b := server(1<<30), server(1<<30)
			put(t, a, "x", "content")
			if err := a.Delete(t.Context(), "box", "x"); err != nil {
				t.Fatal(err)
			}
			gc := func() {
				if _, err := a.GC(t.Context(), 0); err != nil {
					t.Error(err)
				}
			}
			var wg sync.WaitGroup
			if when == "after the content was sent" {
				f.put = func(string) { gc() }
				put(t, b, "x", "content")
			} else {
				f.deleting = func(string) {
					wg.Add(1)
					sent := make(chan struct{})
					go func() {
						defer wg.Done()
						close(sent)
						put(t, b, "x", "content")
					}()
					<-sent
				}
				gc()
			}
			wg.Wait()
			if got := read(t, server(1<<30), "x"); got != "content" {
				t.Error(got)
			}
		})
	}
}

// TestCacheOfContents: the directory keeps no more than it may, and all is read all the same.
func TestCacheOfContents(t *testing.T) {
	_, server := openFar(t)
	s := server(10_000)
	for i := range 50 {
		put(t, s, fmt.Sprint(i), strings.Repeat(fmt.Sprintf("%03d ", i), 250))
	}
	if err := s.Evict(); err != nil {
		t.Fatal(err)
	}
	var size int64
	err := filepath.WalkDir(filepath.Join(s.Dir(), "objects"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info, ierr := d.Info()
			size, err = size+info.Size(), ierr
		}
		return err
	})
	if err != nil || size > 10_000 {
		t.Errorf("the directory has %d bytes, %v", size, err)
	}
	for i := range 50 {
		if got := read(t, s, fmt.Sprint(i)); !strings.HasPrefix(got, fmt.Sprintf("%03d ", i)) {
			t.Errorf("%d is %.10q", i, got)
		}
	}
}
