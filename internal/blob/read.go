package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Stat describes a blob. Size, ETag and Modified of a live one are those of its file now.
func (s *Store) Stat(ctx context.Context, container, name string) (*store.Blob, error) {
	b, err := s.row(ctx, container, name)
	if err != nil {
		return nil, err
	}
	return s.current(b), nil
}

// A Reader reads one version of a blob; replacing or deleting the blob does not disturb it. Of a
// live blob it reads the bytes there were when it was opened. Read, Seek and WriteTo share a
// position and belong to one goroutine; ReadAt and Blob are for any.
type Reader struct {
	*io.SectionReader
	f    *os.File // nil for a live blob whose file is not there yet
	blob *store.Blob
}

// Open opens a blob for reading.
func (s *Store) Open(ctx context.Context, container, name string) (*Reader, error) {
	for seen := ""; ; {
		b, err := s.row(ctx, container, name)
		if err != nil {
			return nil, err
		}
		if b.Live != "" {
			return s.openLive(b)
		}
		f, err := s.openObject(ctx, b.Hash)
		if err == nil {
			return &Reader{io.NewSectionReader(f, 0, b.Size), f, b}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("opening a blob: %w", err)
		}
		// The blob may have been replaced, and its object collected, since the row was read. If it
		// is the same version twice, its bytes are lost.
		if seen == b.ETag {
			return nil, &berth.Error{
				Code: berth.Internal, Err: err,
				Msg: fmt.Sprintf("the bytes of blob %s in container %s are missing from %s", quote(name), quote(container), s.dir),
			}
		}
		seen = b.ETag
	}
}

// ReadSmall reads a blob that has no more than limit bytes; a larger one is Invalid.
func (s *Store) ReadSmall(ctx context.Context, container, name string, limit int64) ([]byte, error) {
	b, err := s.Stat(ctx, container, name)
	if err == nil && b.Size > limit {
		err = berth.Errorf(berth.Invalid, "blob %s has %d bytes; %d are allowed", quote(name), b.Size, limit)
	}
	if err != nil {
		return nil, err
	}
	r, err := s.Open(ctx, container, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r.SectionReader, limit)) // it may have become another one
}

// openObject opens a content, which is fetched where the directory does not have it.
func (s *Store) openObject(ctx context.Context, hash string) (*os.File, error) {
	f, err := s.openLocal(hash)
	if s.remote == nil {
		return f, err
	}
	for range 3 { // it may be evicted again at once
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err = s.fetch(ctx, hash); err != nil {
			break
		}
		f, err = s.openLocal(hash)
	}
	switch {
	case berth.CodeOf(err) == berth.NotFound:
		return nil, fs.ErrNotExist
	case err == nil:
		now := time.Now()
		_ = os.Chtimes(s.object(hash), now, now) // those used longest ago are evicted first
	}
	return f, err
}

func (s *Store) openLocal(hash string) (*os.File, error) {
	f, err := os.Open(s.object(hash))
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.Open(s.trash(hash))
	}
	if errors.Is(err, fs.ErrNotExist) { // GC put it back in between
		f, err = os.Open(s.object(hash))
	}
	return f, err
}

// Blob describes the version that is read.
func (r *Reader) Blob() *store.Blob { return r.blob }

// Close releases the file.
func (r *Reader) Close() error {
	if r.f == nil {
		return nil
	}
	return r.f.Close()
}

// WriteTo writes what is left to w, from kernel to kernel where w can do that.
func (r *Reader) WriteTo(w io.Writer) (int64, error) {
	off, err := r.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	n, err := r.CopyRange(w, off, r.Size()-off)
	if _, serr := r.Seek(off+n, io.SeekStart); err == nil {
		err = serr
	}
	return n, err
}

// CopyRange writes n bytes from off to w, from kernel to kernel where w can do that. It belongs to
// the goroutine that reads.
func (r *Reader) CopyRange(w io.Writer, off, n int64) (int64, error) {
	if n <= 0 || r.f == nil {
		return 0, nil
	}
	if _, err := r.f.Seek(off, io.SeekStart); err != nil {
		return 0, err
	}
	return io.CopyN(w, r.f, n)
}

func (s *Store) row(ctx context.Context, container, name string) (*store.Blob, error) {
	if err := checkNames(container, name); err != nil {
		return nil, err
	}
	var b *store.Blob
	err := s.db.View(ctx, func(tx *store.Tx) (err error) {
		b, err = s.get(tx, container, name)
		return err
	})
	return b, err
}

func (s *Store) get(tx *store.Tx, container, name string) (*store.Blob, error) {
	b, err := tx.Blob(container, name)
	if berth.CodeOf(err) == berth.NotFound {
		return nil, notFound(container, name)
	}
	return b, err
}
