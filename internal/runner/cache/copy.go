package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/berthml/berth"
)

// Copy puts a private, writable copy of a tree into dir, which exists. It says how: "reflink" where
// the file system shares the bytes until one side writes, else "copy".
func (u *Use) Copy(ctx context.Context, dir string) (how string, err error) {
	switch wrong, err := u.Check(ctx); {
	case err != nil:
		return "", err
	case wrong != "":
		return "", berth.Errorf(berth.Unavailable, "%s", wrong)
	}
	if err := makeDirs(dir, u.Tree); err != nil {
		return "", full(err)
	}
	how, err = u.copy(ctx, dir)
	if ctx.Err() == nil && u.cache.afterFull(err, u.Bytes) {
		how, err = u.copy(ctx, dir)
	}
	return how, err
}

func (u *Use) copy(ctx context.Context, dir string) (how string, err error) {
	var plain atomic.Bool
	list := all(u.Tree)
	err = each(ctx, len(list), func(n int) error {
		f := &u.Tree.Files[list[n]]
		rel := filepath.FromSlash(f.Path)
		return full(oddName(f.Path, copyFile(filepath.Join(u.Dir, rel), filepath.Join(dir, rel), f.Size, &plain)))
	})
	if plain.Load() {
		return "copy", err
	}
	return "reflink", err
}

// copyFile copies one file; plain says that the file system shares no bytes.
func copyFile(from, to string, size int64, plain *atomic.Bool) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600|info.Mode()&0o100)
	if err != nil {
		return err
	}
	if size > 0 && (plain.Load() || !clone(out, in)) {
		plain.Store(true)
		_, err = out.ReadFrom(in)
	}
	return errors.Join(err, out.Close())
}
