package blob_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/store"
)

func putBlock(t testing.TB, s *blob.Store, id, text string) {
	t.Helper()
	if err := s.PutBlock(t.Context(), "box", "big", id, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

func TestBlocksOutOfOrderAndParallel(t *testing.T) {
	s := open(t)
	const size, count = 300_000, 40
	data := pattern(size*count - 17)
	var ids []string
	var wg sync.WaitGroup
	parts := slices.Collect(slices.Chunk(data, size))
	for _, i := range rand.Perm(len(parts)) {
		wg.Go(func() {
			if err := s.PutBlock(t.Context(), "box", "big", fmt.Sprintf("b%03d", i), bytes.NewReader(parts[i])); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range parts {
		ids = append(ids, fmt.Sprintf("b%03d", i))
	}
	if blocks, err := s.Blocks(t.Context(), "box", "big"); err != nil || len(blocks) != count {
		t.Error(len(blocks), "blocks staged:", err)
	}
	b, err := s.CommitBlocks(t.Context(), "box", "big", ids, blob.PutOptions{ContentType: "text/plain", Meta: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	if b.Hash != sha(data) || b.Size != int64(len(data)) || b.ContentType != "text/plain" || b.Meta["a"] != "b" {
		t.Errorf("committed %+v", b)
	}
	if read(t, s, "big") != string(data) {
		t.Error("other bytes came back")
	}
	if left := append(files(t, s, "blocks"), files(t, s, "tmp")...); len(left) > 0 {
		t.Error("files left:", left)
	}
}

func TestBlocksOutliveTheProcess(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	putBlock(t, s, "1", "hello ")
	s = openIn(t, dir)
	putBlock(t, s, "2", "world")
	if _, err := s.CommitBlocks(t.Context(), "box", "big", []string{"1", "2"}, blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, "big"); got != "hello world" {
		t.Errorf("read %q", got)
	}
}

func TestBlockLists(t *testing.T) {
	s, ctx := open(t), t.Context()
	putBlock(t, s, "1", "old")
	putBlock(t, s, "1", "new")
	putBlock(t, s, "2", "-")
	_, err := s.CommitBlocks(ctx, "box", "big", []string{"1", "3"}, blob.PutOptions{})
	wantCode(t, err, berth.Invalid, "InvalidBlockList")
	_, err = s.CommitBlocks(ctx, "box", "big", []string{""}, blob.PutOptions{})
	wantCode(t, err, berth.Invalid, "InvalidBlockList")
	_, err = s.CommitBlocks(ctx, "box", "big", make([]string, blob.MaxBlocks+1), blob.PutOptions{})
	wantCode(t, err, berth.Invalid, "BlockListTooLong")
	if _, err := s.CommitBlocks(ctx, "box", "big", []string{"1", "2", "1"}, blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, "big"); got != "new-new" {
		t.Errorf("read %q", got)
	}
	if blocks, _ := s.Blocks(ctx, "box", "big"); len(blocks) > 0 {
		t.Error("still staged:", blocks)
	}
	if _, err := s.CommitBlocks(ctx, "box", "empty", nil, blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, "empty"); got != "" {
		t.Errorf("read %q", got)
	}
	wantCode(t, s.PutBlock(ctx, "box", "big", "", strings.NewReader("x")), berth.Invalid, "InvalidBlockId")
	wantCode(t, s.PutBlock(ctx, "box", "big", strings.Repeat("x", 101), strings.NewReader("x")), berth.Invalid, "InvalidBlockId")
	err = s.PutBlockChecked(ctx, "box", "big", "1", strings.NewReader("x"), blob.PutOptions{MD5: make([]byte, 16)})
	wantCode(t, err, berth.Invalid, "Md5Mismatch")
}

// A client that gave up waiting for a commit sends it again, with the same condition.
func TestRepeatedCommit(t *testing.T) {
	s, ctx := open(t), t.Context()
	once := blob.PutOptions{IfNoneMatch: true}
	putBlock(t, s, "1", "one")
	first, err := s.CommitBlocks(ctx, "box", "big", []string{"1"}, once)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.CommitBlocks(ctx, "box", "big", []string{"1"}, once)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Error(diff)
	}
	// The same list of newly staged blocks is another upload.
	putBlock(t, s, "1", "two")
	_, err = s.CommitBlocks(ctx, "box", "big", []string{"1"}, once)
	wantCode(t, err, berth.Conflict, "BlobAlreadyExists")
	if _, err = s.CommitBlocks(ctx, "box", "big", []string{"1"}, blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, "big"); got != "two" {
		t.Errorf("read %q", got)
	}
	// And once the blob is another one, the list is stale.
	put(t, s, "big", "three")
	_, err = s.CommitBlocks(ctx, "box", "big", []string{"1"}, blob.PutOptions{})
	wantCode(t, err, berth.Invalid, "InvalidBlockList")
}

func TestPutEndsAnUploadInParts(t *testing.T) {
	s := open(t)
	putBlock(t, s, "1", "one")
	put(t, s, "big", "whole")
	if left := files(t, s, "blocks"); len(left) > 0 {
		t.Error("files left:", left)
	}
}

// What a power cut can leave of a block that was not synced: a shorter file, or the right length
// with other bytes.
func TestTornBlocksAreRefused(t *testing.T) {
	for name, tear := range map[string]func(path string) error{
		"empty":   func(path string) error { return os.Truncate(path, 0) },
		"shorter": func(path string) error { return os.Truncate(path, 1000) },
		"zeroes": func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt(make([]byte, 4096), 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			putBlock(t, s, "1", string(pattern(100_000)))
			if err := tear(files(t, s, "blocks")[0]); err != nil {
				t.Fatal(err)
			}
			_, err := s.CommitBlocks(t.Context(), "box", "big", []string{"1"}, blob.PutOptions{})
			wantCode(t, err, berth.Invalid, "InvalidBlockList")
			if left := append(files(t, s, "tmp"), files(t, s, "objects")...); len(left) > 0 {
				t.Error("files left:", left)
			}
		})
	}
}

// Blocks that are replaced while they are committed give one version or the other, and a hash that
// is true of it.
func TestCommitWhileBlocksChange(t *testing.T) {
	s := open(t)
	texts := []string{string(pattern(100_000)), strings.Repeat("b", 100_000)}
	putBlock(t, s, "1", texts[0])
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				putBlock(t, s, "1", texts[i%2])
			}
		}
	})
	for range 100 {
		b, err := s.CommitBlocks(t.Context(), "box", "big", []string{"1", "1"}, blob.PutOptions{})
		if berth.CodeOf(err) == berth.Invalid {
			continue // the commit before took the block
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(s.Dir(), "objects", b.Hash[:2], b.Hash[2:]))
		if err != nil || sha(data) != b.Hash {
			t.Fatal("an object is not what its name says", err)
		}
	}
	close(stop)
	wg.Wait()
}

func TestOldStagesAreCollected(t *testing.T) {
	s := open(t)
	putBlock(t, s, "1", "one")
	if err := s.PutBlock(t.Context(), "box", "young", "1", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	all := files(t, s, "blocks")
	old := time.Now().Add(-blob.BlockAge - time.Minute)
	dir := filepath.Dir(all[0])
	if err := os.Chtimes(dir, old, old); err != nil {
		t.Fatal(err)
	}
	st, err := s.GC(t.Context(), time.Hour)
	if err != nil || st.Stages != 1 {
		t.Error(st, err)
	}
	if left := files(t, s, "blocks"); len(left) != 1 || filepath.Dir(left[0]) == dir {
		t.Error("left:", left)
	}
}

// TestStagedIsCounted: blocks of uploads that are not committed, by container, wherever the folder
// of the store is.
func TestStagedIsCounted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home[1")
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s, err := blob.Open(dir, db)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	putBlock(t, s, "a", "1")
	putBlock(t, s, "b", strings.Repeat("x", 5000))
	if n, bytes, err := s.Staged("box"); n != 1 || bytes != 4096+8192 || err != nil {
		t.Errorf("%d uploads, %d bytes, %v", n, bytes, err)
	}
	if n, bytes, err := s.Staged("other"); n != 0 || bytes != 0 || err != nil {
		t.Errorf("of another container: %d uploads, %d bytes, %v", n, bytes, err)
	}
}
