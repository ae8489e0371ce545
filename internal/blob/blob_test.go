package blob_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/store"
)

// open makes a store in its own directory.
func open(t testing.TB) *blob.Store {
	t.Helper()
	return openIn(t, t.TempDir())
}

func openIn(t testing.TB, dir string) *blob.Store {
	t.Helper()
	s, _ := openBoth(t, dir)
	return s
}

func openBoth(t testing.TB, dir string) (*blob.Store, *store.DB) {
	t.Helper()
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(dir, "berth.db"), store.Options{NoSync: true, Rehearse: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s, err := blob.Open(filepath.Join(dir, "blobs"), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, db
}

func put(t testing.TB, s *blob.Store, name, text string) *store.Blob {
	t.Helper()
	b, err := s.Put(t.Context(), "box", name, strings.NewReader(text), blob.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func read(t testing.TB, s *blob.Store, name string) string {
	t.Helper()
	r, err := s.Open(t.Context(), "box", name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// files lists the files below a directory of the store.
func files(t testing.TB, s *blob.Store, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(filepath.Join(s.Dir(), dir), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func wantCode(t testing.TB, err error, code berth.Code, wire string) {
	t.Helper()
	var e *berth.Error
	if !errors.As(err, &e) || e.Code != code || wire != "" && e.WireCode() != wire {
		t.Errorf("error %v (%s), want %s %s", err, berth.CodeOf(err), code, wire)
	}
}

func sha(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// pattern is n bytes that repeat nowhere near a block's length.
func pattern(n int) []byte {
	b := make([]byte, n)
	x := uint32(2463534242)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

func TestPutOpen(t *testing.T) {
	s := open(t)
	for _, n := range []int{0, 1, 5, 256<<10 - 1, 256 << 10, 256<<10 + 1, 1 << 20, 20<<20 + 7} {
		data := pattern(n)
		b, err := s.Put(t.Context(), "box", "a//b.bin", bytes.NewReader(data), blob.PutOptions{Size: int64(n), SHA256: sha(data)})
		if err != nil {
			t.Fatal(n, err)
		}
		if b.Size != int64(n) || b.Hash != sha(data) {
			t.Errorf("%d bytes: got size %d hash %s", n, b.Size, b.Hash)
		}
		if got := read(t, s, "a//b.bin"); got != string(data) {
			t.Errorf("%d bytes: read others", n)
		}
		st, err := s.Stat(t.Context(), "box", "a//b.bin")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(b, st); diff != "" {
			t.Error(diff)
		}
	}
	if left := files(t, s, "tmp"); len(left) > 0 {
		t.Error("temp files left:", left)
	}
}

func TestReader(t *testing.T) {
	s := open(t)
	put(t, s, "x", "0123456789")
	r, err := s.Open(t.Context(), "box", "x")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	put(t, s, "x", "another")
	if err := iotest.TestReader(r, []byte("0123456789")); err != nil {
		t.Error(err)
	}
	if _, err := r.Seek(3, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	var w bytes.Buffer
	if n, err := r.WriteTo(&w); n != 7 || err != nil || w.String() != "3456789" {
		t.Error(n, err, w.String())
	}
	w.Reset()
	if n, err := r.CopyRange(&w, 2, 4); n != 4 || err != nil || w.String() != "2345" {
		t.Error(n, err, w.String())
	}
	if r.Blob().Size != 10 {
		t.Error("the reader describes another version")
	}
}

func TestSameContentIsKeptOnce(t *testing.T) {
	s := open(t)
	for _, size := range []int{10, 1 << 20} {
		data := string(pattern(size))
		before := len(files(t, s, "objects"))
		put(t, s, "a", data)
		put(t, s, "b", data)
		put(t, s, "c/d", data)
		if n := len(files(t, s, "objects")) - before; n != 1 {
			t.Errorf("%d bytes three times made %d objects", size, n)
		}
	}
}

func TestPutReplacesDamage(t *testing.T) {
	s := open(t)
	b := put(t, s, "a", "hello")
	if err := os.Truncate(filepath.Join(s.Dir(), "objects", b.Hash[:2], b.Hash[2:]), 2); err != nil {
		t.Fatal(err)
	}
	put(t, s, "b", "hello")
	if got := read(t, s, "a"); got != "hello" {
		t.Errorf("read %q", got)
	}
}

func TestConditions(t *testing.T) {
	s, ctx := open(t), t.Context()
	first := put(t, s, "a", "one")
	_, err := s.Put(ctx, "box", "a", strings.NewReader("two"), blob.PutOptions{IfNoneMatch: true})
	wantCode(t, err, berth.Conflict, "BlobAlreadyExists")
	_, err = s.Put(ctx, "box", "b", strings.NewReader("two"), blob.PutOptions{IfMatch: first.ETag})
	wantCode(t, err, berth.Precondition, "ConditionNotMet")
	second, err := s.Put(ctx, "box", "a", strings.NewReader("one"), blob.PutOptions{IfMatch: first.ETag})
	if err != nil || second.ETag == first.ETag {
		t.Errorf("replaced with %v: %v", second, err)
	}
	_, err = s.SetMeta(ctx, "box", "a", nil, first.ETag)
	wantCode(t, err, berth.Precondition, "ConditionNotMet")
	wantCode(t, s.DeleteMatch(ctx, "box", "a", first.ETag), berth.Precondition, "ConditionNotMet")
	if err := s.DeleteMatch(ctx, "box", "a", second.ETag); err != nil {
		t.Error(err)
	}
	wantCode(t, s.Delete(ctx, "box", "a"), berth.NotFound, "BlobNotFound")
	_, err = s.Open(ctx, "box", "a")
	wantCode(t, err, berth.NotFound, "BlobNotFound")
}

func TestIfNoneMatchLetsOneIn(t *testing.T) {
	s := open(t)
	results := make(chan error, 16)
	for i := range cap(results) {
		go func() {
			_, err := s.Put(t.Context(), "box", "lock", strings.NewReader(strings.Repeat("x", i)), blob.PutOptions{IfNoneMatch: true})
			results <- err
		}()
	}
	won := 0
	for range cap(results) {
		if err := <-results; err == nil {
			won++
		} else {
			wantCode(t, err, berth.Conflict, "BlobAlreadyExists")
		}
	}
	if won != 1 {
		t.Errorf("%d uploads won", won)
	}
}

func TestChecksRefuse(t *testing.T) {
	wrong := md5.Sum([]byte("other"))
	for _, size := range []int{5, 1 << 20} {
		s, data := open(t), pattern(size)
		right := md5.Sum(data)
		for name, o := range map[string]blob.PutOptions{
			"md5":   {MD5: wrong[:]},
			"sha":   {SHA256: sha([]byte("other"))},
			"short": {Size: int64(size + 1)},
			"long":  {Size: int64(size - 1)},
		} {
			_, err := s.Put(t.Context(), "box", name, bytes.NewReader(data), o)
			wantCode(t, err, berth.Invalid, "")
			_, err = s.Stat(t.Context(), "box", name)
			wantCode(t, err, berth.NotFound, "")
		}
		if left := append(files(t, s, "tmp"), files(t, s, "objects")...); len(left) > 0 {
			t.Error("files left:", left)
		}
		b, err := s.Put(t.Context(), "box", "ok", bytes.NewReader(data), blob.PutOptions{MD5: right[:]})
		if err != nil || b.ContentMD5 == "" {
			t.Error(b, err)
		}
	}
}

// A body that is cut ends in an error of the reader, however much came before.
func TestCutContentLeavesNothing(t *testing.T) {
	s := open(t)
	for _, n := range []int{0, 1, 100, 256 << 10, 3 << 20} {
		for _, cut := range []error{io.ErrUnexpectedEOF, errors.New("connection reset")} {
			r := io.MultiReader(bytes.NewReader(pattern(n)), iotest.ErrReader(cut))
			if _, err := s.Put(t.Context(), "box", "cut", r, blob.PutOptions{}); !errors.Is(err, cut) {
				t.Errorf("after %d bytes: %v", n, err)
			}
			if err := s.PutBlock(t.Context(), "box", "cut", "id", r); !errors.Is(err, cut) {
				t.Errorf("block after %d bytes: %v", n, err)
			}
		}
	}
	_, err := s.Stat(t.Context(), "box", "cut")
	wantCode(t, err, berth.NotFound, "BlobNotFound")
	if left := append(append(files(t, s, "tmp"), files(t, s, "objects")...), files(t, s, "blocks")...); len(left) > 0 {
		t.Error("files left:", left)
	}
}

func TestCanceledPutLeavesNothing(t *testing.T) {
	s := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	r := io.MultiReader(bytes.NewReader(pattern(1<<20)), readerFunc(func([]byte) (int, error) { cancel(); return 0, nil }), bytes.NewReader(pattern(1<<20)))
	if _, err := s.Put(ctx, "box", "a", r, blob.PutOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left := append(files(t, s, "tmp"), files(t, s, "objects")...); len(left) > 0 {
		t.Error("files left:", left)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) {
	n, err := f(p)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func TestMeta(t *testing.T) {
	s, ctx := open(t), t.Context()
	first := put(t, s, "a", "x")
	meta := map[string]string{"upload_status": "completed", "name": "n", "version": "None"}
	b, err := s.SetMeta(ctx, "box", "a", meta, "")
	if err != nil {
		t.Fatal(err)
	}
	if b.ETag == first.ETag {
		t.Error("the ETag did not change")
	}
	st, err := s.Stat(ctx, "box", "a")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(meta, st.Meta); diff != "" {
		t.Error(diff)
	}
	if read(t, s, "a") != "x" {
		t.Error("the content changed")
	}
	for k, v := range map[string]string{"": "x", "1a": "x", "a b": "x", "ok": "a\nb", "é": "x", "big": strings.Repeat("x", 9000)} {
		_, err := s.SetMeta(ctx, "box", "a", map[string]string{k: v}, "")
		wantCode(t, err, berth.Invalid, "")
	}
	_, err = s.SetMeta(ctx, "box", "nope", nil, "")
	wantCode(t, err, berth.NotFound, "BlobNotFound")
}

func TestLinkFile(t *testing.T) {
	s := open(t)
	for _, n := range []int{0, 10, 1 << 20} {
		data := pattern(n)
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			b, err := s.LinkFile(t.Context(), "box", "f", path, blob.PutOptions{})
			if err != nil || b.Hash != sha(data) {
				t.Fatal(b, err)
			}
		}
		if err := os.WriteFile(path, bytes.Repeat([]byte{'!'}, n), 0o600); err != nil {
			t.Fatal(err)
		}
		if read(t, s, "f") != string(data) {
			t.Error("a write to the file shows in the blob")
		}
		_, err := s.LinkFile(t.Context(), "box", "f", path, blob.PutOptions{SHA256: sha([]byte("other"))})
		wantCode(t, err, berth.Invalid, "")
	}
	_, err := s.LinkFile(t.Context(), "box", "dir", t.TempDir(), blob.PutOptions{})
	wantCode(t, err, berth.Invalid, "")
	if _, err := s.LinkFile(t.Context(), "box", "none", filepath.Join(t.TempDir(), "none"), blob.PutOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if left := files(t, s, "tmp"); len(left) > 0 {
		t.Error("temp files left:", left)
	}
}
