package blob_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
)

func age(t testing.TB, path string, by time.Duration) {
	t.Helper()
	at := time.Now().Add(-by)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func TestGC(t *testing.T) {
	s, ctx := open(t), t.Context()
	kept := put(t, s, "kept", "kept")
	put(t, s, "shared", "shared")
	put(t, s, "shared2", "shared")
	gone := put(t, s, "gone", "gone!")
	young := put(t, s, "young", "young")
	for _, n := range []string{"gone", "young", "shared2"} {
		if err := s.Delete(ctx, "box", n); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range files(t, s, "objects") {
		age(t, p, 2*time.Hour)
	}
	object := func(hash string) string { return filepath.Join(s.Dir(), "objects", hash[:2], hash[2:]) }
	age(t, object(young.Hash), time.Minute)
	for name, by := range map[string]time.Duration{"up-old": 2 * time.Hour, "up-new": time.Minute} {
		p := filepath.Join(s.Dir(), "tmp", name)
		if err := os.WriteFile(p, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		age(t, p, by)
	}
	st, err := s.GC(ctx, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if want := (blob.Stats{Objects: 1, Bytes: 5, Temps: 1}); st != want {
		t.Errorf("removed %+v, want %+v", st, want)
	}
	if _, err := os.Stat(object(gone.Hash)); !errors.Is(err, os.ErrNotExist) {
		t.Error("the object without a name is still there")
	}
	if _, err := os.Stat(object(young.Hash)); err != nil {
		t.Error("the young object was removed")
	}
	if read(t, s, "kept") != "kept" || read(t, s, "shared") != "shared" || kept.Hash == "" {
		t.Error("content was lost")
	}
	if left := files(t, s, "tmp"); len(left) != 1 {
		t.Error("temp files:", left)
	}
}

// What a GC that was killed left in the trash is served, and put back or removed by the next.
func TestGCFinishesWhatWasCutShort(t *testing.T) {
	s, ctx := open(t), t.Context()
	used := put(t, s, "used", "used")
	unused := put(t, s, "unused", "unused")
	for _, h := range []string{used.Hash, unused.Hash} {
		object := filepath.Join(s.Dir(), "objects", h[:2], h[2:])
		age(t, object, time.Hour)
		if err := os.Rename(object, filepath.Join(s.Dir(), "trash", h)); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, s, "used") != "used" {
		t.Error("not served from the trash")
	}
	if err := s.Delete(ctx, "box", "unused"); err != nil {
		t.Fatal(err)
	}
	if st, err := s.GC(ctx, time.Minute); err != nil || st.Objects != 1 {
		t.Error(st, err)
	}
	if left := files(t, s, "trash"); len(left) > 0 {
		t.Error("trash:", left)
	}
	if read(t, s, "used") != "used" {
		t.Error("not put back")
	}
}

// Two stores on one directory know nothing of each other's uploads, like two processes: the age of
// an object is all there is. An old object without a name that is uploaded again while the other
// collects it must be there in the end.
func TestGCOfAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	s, other, ctx := openIn(t, dir), openIn(t, dir), t.Context()
	stop := make(chan struct{})
	var collector sync.WaitGroup
	removed := 0
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			st, err := other.GC(ctx, time.Minute)
			if err != nil {
				t.Error(err)
				return
			}
			removed += st.Objects
		}
	})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			name, text := fmt.Sprint(w), strings.Repeat(fmt.Sprint(w), 1000)
			for range 200 {
				b := put(t, s, name, text)
				if got := read(t, s, name); got != text {
					t.Error("read other bytes")
				}
				if err := s.Delete(ctx, "box", name); err != nil {
					t.Error(err)
				}
				old := time.Now().Add(-time.Hour)
				os.Chtimes(filepath.Join(s.Dir(), "objects", b.Hash[:2], b.Hash[2:]), old, old) // it may be gone
			}
			put(t, s, name, text)
		})
	}
	wg.Wait()
	close(stop)
	collector.Wait()
	for w := range 4 {
		read(t, s, fmt.Sprint(w))
	}
	t.Log(removed, "objects removed under way")
}

// GC without any grace, beside uploads, deletions and reads of few contents under few names:
// whatever is in the index can be read, always.
func TestGCBesideEverything(t *testing.T) {
	s, ctx := open(t), t.Context()
	contents := []string{"a", "b", "c", string(pattern(300 << 10))}
	stop := make(chan struct{})
	var wg, collector sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := s.GC(ctx, 0); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for w := range 6 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for range 100 {
				name, text := fmt.Sprintf("n%d", r.IntN(4)), contents[r.IntN(len(contents))]
				switch r.IntN(5) {
				case 0:
					if err := s.Delete(ctx, "box", name); err != nil && berth.CodeOf(err) != berth.NotFound {
						t.Error("delete:", err)
					}
				case 1:
					if err := s.PutBlock(ctx, "box", name, "1", strings.NewReader(text)); err != nil {
						t.Error("block:", err)
					}
					if _, err := s.CommitBlocks(ctx, "box", name, []string{"1"}, blob.PutOptions{}); err != nil && berth.CodeOf(err) != berth.Invalid {
						t.Error("commit:", err)
					}
				case 2:
					if _, err := s.Put(ctx, "box", name, strings.NewReader(text), blob.PutOptions{}); err != nil {
						t.Error("put:", err)
					}
				default:
					f, err := s.Open(ctx, "box", name)
					if berth.CodeOf(err) == berth.NotFound {
						continue
					}
					if err != nil {
						t.Error("open:", err)
						continue
					}
					got, err := io.ReadAll(f)
					if err != nil || sha(got) != f.Blob().Hash {
						t.Error("read:", err)
					}
					f.Close()
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	collector.Wait()
	if _, err := s.GC(ctx, 0); err != nil {
		t.Fatal(err)
	}
	names, _ := list(s, t, blob.ListOptions{})
	hashes := map[string]bool{}
	for _, n := range names {
		hashes[sha([]byte(read(t, s, n)))] = true
	}
	if objects := files(t, s, "objects"); len(objects) != len(hashes) {
		t.Errorf("%d objects for %d contents", len(objects), len(hashes))
	}
	if left := append(files(t, s, "tmp"), files(t, s, "trash")...); len(left) > 0 {
		t.Error("files left:", left)
	}
}
