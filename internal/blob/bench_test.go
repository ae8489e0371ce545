package blob_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/store"
)

// openDurable is a store as a server has it: the database syncs too.
func openDurable(b *testing.B) *blob.Store {
	dir := b.TempDir()
	db, err := store.Open(b.Context(), "sqlite:"+filepath.Join(dir, "berth.db"), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	s, err := blob.Open(filepath.Join(dir, "blobs"), db)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

func BenchmarkPut(b *testing.B) {
	for _, size := range []int{4 << 10, 256 << 10, 64 << 20} {
		b.Run(fmt.Sprint(size>>10, "KiB"), func(b *testing.B) {
			s, data := openDurable(b), pattern(size)
			b.SetBytes(int64(size))
			i := uint64(0)
			for b.Loop() {
				i++
				binary.BigEndian.PutUint64(data, i)
				if _, err := s.Put(b.Context(), "box", fmt.Sprint(i), bytes.NewReader(data), blob.PutOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPutSame(b *testing.B) {
	s, data := openDurable(b), pattern(4<<10)
	i := 0
	for b.Loop() {
		i++
		if _, err := s.Put(b.Context(), "box", fmt.Sprint(i), bytes.NewReader(data), blob.PutOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPutParallel(b *testing.B) {
	s := openDurable(b)
	var n atomic.Uint64
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		data := pattern(4 << 10)
		for pb.Next() {
			i := n.Add(1)
			binary.BigEndian.PutUint64(data, i)
			if _, err := s.Put(b.Context(), "box", fmt.Sprint(i), bytes.NewReader(data), blob.PutOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkCommit(b *testing.B) {
	s, block := openDurable(b), pattern(4<<20)
	const blocks = 64
	b.SetBytes(blocks << 22)
	i := uint64(0)
	for b.Loop() {
		ids := make([]string, blocks)
		for k := range ids {
			ids[k] = fmt.Sprint(k)
			i++
			binary.BigEndian.PutUint64(block, i)
			if err := s.PutBlock(b.Context(), "box", "big", ids[k], bytes.NewReader(block)); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := s.CommitBlocks(b.Context(), "box", "big", ids, blob.PutOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLinkFile(b *testing.B) {
	s := openDurable(b)
	path := filepath.Join(b.TempDir(), "f")
	if err := os.WriteFile(path, pattern(64<<20), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(64 << 20)
	for b.Loop() {
		if _, err := s.LinkFile(b.Context(), "box", "f", path, blob.PutOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGC(b *testing.B) {
	s := openDurable(b)
	for i := range 5000 {
		if _, err := s.Put(b.Context(), "box", fmt.Sprint(i), bytes.NewReader([]byte(fmt.Sprint(i))), blob.PutOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, err := s.GC(b.Context(), 0); err != nil {
			b.Fatal(err)
		}
	}
}
