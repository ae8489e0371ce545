package blob_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/store"
)

// openSmall makes a store on a disk of 4 MiB; its database is elsewhere.
func openSmall(t *testing.T) *blob.Store {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a small disk can be mounted by root only")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skip("no tmpfs can be mounted here:", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "berth.db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s, err := blob.Open(dir, db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestFullDisk(t *testing.T) {
	s, ctx := openSmall(t), t.Context()
	first := pattern(2 << 20)
	if _, err := s.Put(ctx, "box", "first", bytes.NewReader(first), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	large := pattern(8 << 20)
	full := func(err error) {
		t.Helper()
		wantCode(t, err, berth.Unavailable, "InsufficientStorage")
		if left := files(t, s, "tmp"); len(left) > 0 {
			t.Error("temp files left:", left)
		}
	}
	_, err := s.Put(ctx, "box", "second", bytes.NewReader(large), blob.PutOptions{})
	full(err)
	read := 0
	_, err = s.Put(ctx, "box", "second", io.TeeReader(bytes.NewReader(large), counter{&read}), blob.PutOptions{Size: int64(len(large))})
	full(err)
	if read > 0 {
		t.Error("an announced size that cannot fit was read all the same")
	}
	full(s.PutBlock(ctx, "box", "second", "1", bytes.NewReader(large)))
	if err := s.PutBlock(ctx, "box", "second", "1", bytes.NewReader(large[:1<<20])); err != nil {
		t.Fatal(err)
	}
	_, err = s.CommitBlocks(ctx, "box", "second", []string{"1", "1"}, blob.PutOptions{})
	full(err)
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, large, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = s.LinkFile(ctx, "box", "second", path, blob.PutOptions{})
	full(err)
	if _, err := s.Stat(ctx, "box", "second"); berth.CodeOf(err) != berth.NotFound {
		t.Error("half indexed:", err)
	}
	if got := len(files(t, s, "objects")); got != 1 {
		t.Error(got, "objects")
	}
	// Room again, and everything goes on. What was staged is still there.
	if err := s.Delete(ctx, "box", "first"); err != nil {
		t.Fatal(err)
	}
	if st, err := s.GC(ctx, 0); err != nil || st.Objects != 1 {
		t.Fatal(st, err)
	}
	if _, err := s.CommitBlocks(ctx, "box", "second", []string{"1", "1"}, blob.PutOptions{}); err != nil {
		t.Error(err)
	}
}

type counter struct{ n *int }

func (c counter) Write(p []byte) (int, error) { *c.n += len(p); return len(p), nil }

// TestOneBlockManyTimes: a list that names one block many times is refused for its whole size,
// before a byte of it is written.
func TestOneBlockManyTimes(t *testing.T) {
	s, ctx := openSmall(t), t.Context()
	if err := s.PutBlock(ctx, "box", "big", "1", bytes.NewReader(pattern(1<<20))); err != nil {
		t.Fatal(err)
	}
	many := slices.Repeat([]string{"1"}, blob.MaxBlocks)
	_, err := s.CommitBlocks(ctx, "box", "big", many, blob.PutOptions{})
	wantCode(t, err, berth.Unavailable, "InsufficientStorage")
	if !strings.Contains(err.Error(), "52428800000 bytes") {
		t.Errorf("the size was not counted: %v", err)
	}
	if _, err := s.CommitBlocks(ctx, "box", "big", many[:2], blob.PutOptions{}); err != nil {
		t.Errorf("a list that fits: %v", err)
	}
}
