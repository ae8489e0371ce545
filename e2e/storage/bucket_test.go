package storage

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob/bucket"
)

// TestBucket: contents in a bucket are put, found, fetched and removed, small ones and large ones.
func TestBucket(t *testing.T) {
	s := startS3(t)
	b, err := bucket.Open(bucket.Options{URI: "s3://data/own", Endpoint: s.endpoint, KeyID: s3Key, Secret: s3Secret})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	contents := map[string][]byte{
		strings.Repeat("ab", 32): []byte("small"), strings.Repeat("ac", 32): {}, "ab" + strings.Repeat("0", 62): bytes.Repeat([]byte("x"), 70_000_000),
	}
	dir := t.TempDir()
	for hash, text := range contents {
		path := filepath.Join(dir, hash)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Put(t.Context(), hash, f); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if at, err := b.Modified(t.Context(), hash); err != nil || time.Since(at).Abs() > time.Hour {
			t.Errorf("modified %v, %v", at, err)
		}
	}
	listed := 0
	err = b.List(t.Context(), "ab", func(hash string, size int64, modified time.Time) error {
		listed++
		if want, ok := contents[hash]; !ok || size != int64(len(want)) || time.Since(modified).Abs() > time.Hour {
			t.Errorf("%s has %d bytes of %v", hash, size, modified)
		}
		return nil
	})
	if err != nil || listed != 2 {
		t.Errorf("%d are listed: %v", listed, err)
	}
	if err := b.List(t.Context(), "00", func(string, int64, time.Time) error { t.Error("one too many"); return nil }); err != nil {
		t.Error(err)
	}
	for hash, want := range contents {
		to := filepath.Join(dir, "got")
		if err := b.Get(t.Context(), hash, to); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s came with %d bytes: %v", hash, len(got), err)
		}
		for range 2 { // one that is not there is no error
			if err := b.Delete(t.Context(), hash); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Get(t.Context(), hash, to); berth.CodeOf(err) != berth.NotFound {
			t.Error(err)
		}
		if _, err := b.Modified(t.Context(), hash); berth.CodeOf(err) != berth.NotFound {
			t.Error(err)
		}
	}
	bad, err := bucket.Open(bucket.Options{URI: "s3://data/own", Endpoint: s.endpoint, KeyID: s3Key, Secret: "another"})
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close()
	if err := bad.Get(t.Context(), strings.Repeat("ab", 32), filepath.Join(dir, "got")); err == nil || berth.CodeOf(err) == berth.NotFound || !strings.Contains(err.Error(), "rejects its credentials") {
		t.Error(err)
	}
}
