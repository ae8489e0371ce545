package blob

import (
	"context"
	"io"
	"os"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// LinkFile keeps a file of this machine under a name. The bytes are shared with the file where the
// file system can share them copy-on-write, and copied otherwise: later writes to the file never
// show.
func (s *Store) LinkFile(ctx context.Context, container, name, path string, o PutOptions) (*store.Blob, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, berth.Errorf(berth.Invalid, "%s is not a regular file", path)
	}
	if info.Size() <= small {
		return s.Put(ctx, container, name, f, o)
	}
	if err := s.admit(ctx, container, name, o); err != nil {
		return nil, err
	}
	c, unpin, err := s.absorbFile(ctx, f, len(o.MD5) > 0, o.check)
	if err != nil {
		return nil, err
	}
	defer unpin()
	return s.index(ctx, container, name, c, o)
}

// absorbFile is absorb for a file that somebody may write to meanwhile: what counts are the bytes
// that were read.
func (s *Store) absorbFile(ctx context.Context, f *os.File, wantMD5 bool, check func(content) error) (content, func(), error) {
	t, err := s.newTemp()
	if err != nil {
		return content{}, nil, s.diskError("importing a file", err)
	}
	defer t.discard()
	if clone(t.File, f) {
		c, err := sumFile(ctx, t.File, wantMD5)
		if err != nil {
			return content{}, nil, err
		}
		unpin, err := s.keep(t, c, check)
		return c, unpin, err
	}
	// Hashing content that is kept already is cheaper than copying it first.
	c, err := sumFile(ctx, f, wantMD5)
	if err != nil {
		return content{}, nil, err
	}
	unpin := s.pin(c.hash)
	ok, err := s.have(c.hash, c.size)
	if ok && err == nil {
		if err = check(c); err == nil {
			return c, unpin, nil
		}
	}
	unpin()
	if err != nil {
		return content{}, nil, s.diskError("importing a file", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return content{}, nil, err
	}
	return s.absorb(ctx, f, wantMD5, check)
}

func sumFile(ctx context.Context, f *os.File, wantMD5 bool) (content, error) {
	buf := buffers.Get().(*[small]byte)
	defer buffers.Put(buf)
	sum := newSums(wantMD5)
	for off := int64(0); ; {
		n, err := f.ReadAt(buf[:], off)
		sum.add(buf[:n])
		off += int64(n)
		if err == io.EOF {
			return sum.content(off), nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return content{}, err
		}
	}
}
