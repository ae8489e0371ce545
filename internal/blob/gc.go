package blob

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/berthml/berth/internal/store"
)

// Stats is what a GC removed.
type Stats struct {
	Objects int   // contents without a name
	Bytes   int64 // in those
	Temps   int   // files of uploads that ended unfinished
	Stages  int   // uploads in parts that were never committed
}

// GC removes objects that no blob names and that are older than grace, temp files that old, and
// staged blocks older than BlockAge. It may run beside everything else; a second GC waits for the
// first.
func (s *Store) GC(ctx context.Context, grace time.Duration) (Stats, error) {
	s.collecting.Lock()
	defer s.collecting.Unlock()
	var st Stats
	for _, step := range []func(context.Context, time.Duration, *Stats) error{s.gcTrash, s.gcTemps, s.gcBlocks, s.gcObjects, s.gcRemote} {
		if err := step(ctx, grace, &st); err != nil {
			return st, fmt.Errorf("collecting blobs: %w", err)
		}
	}
	return st, nil
}

// gcTrash finishes what a GC that was cut short began.
func (s *Store) gcTrash(ctx context.Context, grace time.Duration, st *Stats) error {
	entries, err := os.ReadDir(filepath.Join(s.dir, "trash"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !isHash(e.Name()) {
			continue
		}
		if err := s.settle(ctx, e.Name(), grace, st); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) gcTemps(ctx context.Context, grace time.Duration, st *Stats) error {
	dir := filepath.Join(s.dir, "tmp")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < grace || s.tempUsed(e.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
		st.Temps++
	}
	return ctx.Err()
}

func (s *Store) tempUsed(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.temps[name]
	return ok
}

func (s *Store) gcBlocks(ctx context.Context, _ time.Duration, st *Stats) error {
	dir := filepath.Join(s.dir, "blocks")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info() // of a directory: the time the last block came
		if err != nil || time.Since(info.ModTime()) < BlockAge {
			continue
		}
		if err := s.dropBlocks(e.Name()); err != nil {
			return err
		}
		st.Stages++
	}
	return ctx.Err()
}

func (s *Store) gcObjects(ctx context.Context, grace time.Duration, st *Stats) error {
	for i := range 256 {
		shard := fmt.Sprintf("%02x", i)
		entries, err := os.ReadDir(filepath.Join(s.dir, "objects", shard))
		if err != nil {
			return err
		}
		named, err := s.namedHashes(ctx, shard, len(entries))
		if err != nil {
			return err
		}
		for _, e := range entries {
			hash := shard + e.Name()
			if named[hash] || !isHash(hash) {
				continue
			}
			info, err := e.Info()
			if err != nil || time.Since(info.ModTime()) < grace {
				continue
			}
			if err := s.collect(ctx, hash, grace, st); err != nil {
				return err
			}
		}
	}
	return nil
}

// namedHashes reads the hashes in use that begin with shard.
func (s *Store) namedHashes(ctx context.Context, shard string, objects int) (map[string]bool, error) {
	if objects == 0 {
		return nil, ctx.Err()
	}
	named := make(map[string]bool, objects)
	limit := min(page, objects+1) // what is named has an object
	for after := shard; ; {
		var hashes []string
		err := s.db.View(ctx, func(tx *store.Tx) (err error) {
			hashes, err = tx.BlobHashes(after, limit)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, h := range hashes {
			if len(h) < 2 || h[:2] != shard {
				return named, nil
			}
			named[h], after = true, h
		}
		if len(hashes) < limit {
			return named, nil
		}
	}
}

// collect takes an object out of the way, so that no upload can count on it any more, and only then
// looks whether one did before.
func (s *Store) collect(ctx context.Context, hash string, grace time.Duration, st *Stats) error {
	s.mu.Lock()
	if s.pins[hash] > 0 {
		s.mu.Unlock()
		return nil
	}
	err := os.Rename(s.object(hash), s.trash(hash))
	s.mu.Unlock()
	if err != nil {
		return ignoreMissing(err)
	}
	return s.settle(ctx, hash, grace, st)
}

// settle removes an object in the trash, or puts it back when it is named, or was made young by an
// upload of another process that has not named it yet. Readers find it in the trash meanwhile.
func (s *Store) settle(ctx context.Context, hash string, grace time.Duration, st *Stats) error {
	info, err := os.Stat(s.trash(hash))
	if err != nil {
		return ignoreMissing(err)
	}
	var used bool
	err = s.db.View(ctx, func(tx *store.Tx) (err error) {
		used, err = tx.BlobHashUsed(hash)
		return err
	})
	if err != nil || used || time.Since(info.ModTime()) < grace {
		return errors.Join(err, s.restore(hash))
	}
	if err := os.Remove(s.trash(hash)); err != nil {
		return ignoreMissing(err)
	}
	st.Objects++
	st.Bytes += info.Size()
	return nil
}

func (s *Store) restore(hash string) error {
	_, err := os.Lstat(s.object(hash))
	switch {
	case err == nil: // an upload has brought it again
		return ignoreMissing(os.Remove(s.trash(hash)))
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.Rename(s.trash(hash), s.object(hash)); err != nil {
		return ignoreMissing(err)
	}
	return syncDir(filepath.Dir(s.object(hash)))
}

func isHash(s string) bool {
	if len(s) != 64 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
