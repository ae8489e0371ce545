package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// PutLive gives a file that is still being appended to, DIR/rel, a name. The file need not exist
// yet; it is empty until it does. Registering the same file again changes nothing.
func (s *Store) PutLive(ctx context.Context, container, name, rel string) (*store.Blob, error) {
	if err := checkNames(container, name); err != nil {
		return nil, err
	}
	rel = filepath.ToSlash(filepath.Clean(rel))
	first, _, _ := strings.Cut(rel, "/")
	switch {
	case !filepath.IsLocal(rel) || rel == ".":
		return nil, berth.Errorf(berth.Invalid, "live file %s is outside the blob directory", quote(rel))
	case first == "objects" || first == "tmp" || first == "blocks" || first == "trash":
		return nil, berth.Errorf(berth.Invalid, "live file %s is in a directory that belongs to the blob store", quote(rel))
	}
	at := now()
	fresh := &store.Blob{
		Container: container, Name: name, Live: rel, ContentType: "text/plain; charset=utf-8",
		ETag: newETag(), Created: at, Modified: at,
	}
	b := fresh
	err := s.db.Update(ctx, func(tx *store.Tx) error {
		old, err := tx.Blob(container, name)
		if err == nil && old.Live == rel {
			b = old
			return nil
		}
		if err != nil && berth.CodeOf(err) != berth.NotFound {
			return err
		}
		b = fresh
		return tx.PutBlob(fresh)
	})
	if err != nil {
		return nil, err
	}
	return s.current(b), nil
}

// current is a stored blob as it is now: a live one has the size and time of its file.
func (s *Store) current(b *store.Blob) *store.Blob {
	if b.Live == "" {
		return b
	}
	info, err := s.root.Lstat(b.Live)
	if err != nil || !info.Mode().IsRegular() {
		return grown(b, nil)
	}
	return grown(b, info)
}

func grown(b *store.Blob, info fs.FileInfo) *store.Blob {
	c := *b
	c.Size = 0
	if info != nil {
		c.Size, c.Modified = info.Size(), info.ModTime().UTC()
	}
	c.ETag = b.ETag + "-" + strconv.FormatInt(c.Size, 16)
	return &c
}

// SamePrefix reports whether the blob, a live one, began with the version etag names: all it had
// then it still has.
func SamePrefix(b *store.Blob, etag string) bool {
	if b.Live == "" {
		return false
	}
	base, size, ok := strings.Cut(etag, "-")
	now, _, _ := strings.Cut(b.ETag, "-")
	n, err := strconv.ParseInt(size, 16, 64)
	return ok && err == nil && base == now && n <= b.Size
}

// OpenLive opens the file of a live blob, DIR/rel. With os.O_CREATE it is made if it is not there,
// and so is its folder. Jobs may be able to write where their logs are: a link or a pipe in the
// file's place is refused, and nothing outside the directory is opened.
func (s *Store) OpenLive(rel string, flag int) (*os.File, error) {
	f, err := s.root.OpenFile(rel, flag&^(os.O_CREATE|os.O_TRUNC)|openFlags, 0)
	if errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0 {
		f, err = s.makeLive(rel, flag)
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", rel, err)
	}
	opened, err := f.Stat()
	if err == nil {
		var named fs.FileInfo
		named, err = s.root.Lstat(rel)
		switch {
		case err != nil:
		case !named.Mode().IsRegular():
			err = errors.New("it is not a regular file")
		case !os.SameFile(opened, named):
			err = fs.ErrNotExist // it was empty, and became another task's
		}
	}
	if err != nil {
		f.Close() // nothing was written
		return nil, fmt.Errorf("opening %s: %w", rel, err)
	}
	return f, nil
}

// makeLive makes a file, but not at the end of a link, and opens it.
func (s *Store) makeLive(rel string, flag int) (*os.File, error) {
	if err := s.root.MkdirAll(path.Dir(rel), 0o700); err != nil {
		return nil, err
	}
	f, err := s.root.OpenFile(rel, flag|os.O_EXCL|openFlags, 0o600)
	if errors.Is(err, fs.ErrExist) { // another made it meanwhile
		f, err = s.root.OpenFile(rel, flag&^(os.O_CREATE|os.O_TRUNC)|openFlags, 0)
	}
	return f, err
}

// openLive opens the file as it is now.
func (s *Store) openLive(b *store.Blob) (*Reader, error) {
	f, err := s.OpenLive(b.Live, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return &Reader{io.NewSectionReader(strings.NewReader(""), 0, 0), nil, grown(b, nil)}, nil
	}
	if err != nil {
		return nil, err
	}
	opened, err := f.Stat()
	if err != nil {
		f.Close() // opened for reading
		return nil, err
	}
	b = grown(b, opened)
	return &Reader{io.NewSectionReader(f, 0, b.Size), f, b}, nil
}

// LiveSize is the size of a live file, 0 where there is none.
func (s *Store) LiveSize(rel string) (int64, error) {
	info, err := s.root.Lstat(rel)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// RemoveLive removes a live file that no blob names any more. One that is not there is no error.
func (s *Store) RemoveLive(rel string) error { return ignoreMissing(s.root.Remove(rel)) }
