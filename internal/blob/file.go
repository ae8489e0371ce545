package blob

import (
	"context"
	"io"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// PutFile is Put for a file of this machine, which is copied by the kernel, or shared where the
// file system can do that. One that has not o.Size bytes, or is written to meanwhile, is a
// Conflict. progress is called with how many bytes are kept so far; an error of it ends the copy.
func (s *Store) PutFile(ctx context.Context, container, name string, f *os.File, o PutOptions, progress func(int64) error) (*store.Blob, error) {
	if err := s.admit(ctx, container, name, o); err != nil {
		return nil, err
	}
	t, err := s.newTemp()
	if err != nil {
		return nil, s.diskError("starting an upload", err)
	}
	defer t.discard()
	before, err := f.Stat()
	if err != nil {
		return nil, err
	}
	sum := newSums(len(o.MD5) > 0)
	if err := s.copyFile(ctx, t, f, o.Size, sum, progress); err != nil {
		return nil, s.diskError("keeping an upload", err)
	}
	if after, err := f.Stat(); err != nil || before.Size() != o.Size || after.Size() != o.Size || !after.ModTime().Equal(before.ModTime()) {
		return nil, changedFile(f)
	}
	c := sum.content(o.Size)
	unpin, err := s.keep(t, c, o.check)
	if err != nil {
		return nil, err
	}
	defer unpin()
	return s.index(ctx, container, name, c, o)
}

// fileStep is how much of a file is copied before it is hashed: so little that it is in memory.
const fileStep = 16 << 20

// copyFile copies the first size bytes of f to t, and hashes what t has, since f may change.
func (s *Store) copyFile(ctx context.Context, t *temp, f *os.File, size int64, sum io.Writer, progress func(int64) error) error {
	shared := clone(t.File, f)
	g, ctx := errgroup.WithContext(ctx)
	steps := make(chan int64, 4) // how far t is written
	g.Go(func() error {
		defer close(steps)
		for at := int64(0); at < size; {
			n := min(fileStep, size-at)
			if !shared {
				if copied, err := io.CopyN(t.File, f, n); err == io.EOF || err == nil && copied != n {
					return changedFile(f)
				} else if err != nil {
					return err
				}
				writeback(t.File, at, n)
			}
			at += n
			select {
			case steps <- at:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	g.Go(func() error {
		buf := buffers.Get().(*[small]byte)
		defer buffers.Put(buf)
		at := int64(0)
		for end := range steps {
			if _, err := io.CopyBuffer(onlyWriter{sum}, io.NewSectionReader(t, at, end-at), buf[:]); err != nil {
				return err
			}
			at = end
			if err := progress(at); err != nil {
				return err
			}
		}
		return nil
	})
	return g.Wait()
}

// onlyWriter hides what else a writer can do, so that it is given what was read in a buffer.
type onlyWriter struct{ io.Writer }

func changedFile(f *os.File) error {
	return berth.Errorf(berth.Conflict, "%s was changed while it was read; try again", f.Name())
}
