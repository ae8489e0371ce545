package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob/bucket"
	"github.com/berthml/berth/internal/config"
)

// trackingTries is how often the files of tracking are listed again because one was merged into
// another before it was copied.
const trackingTries = 20

// files copies the files of the home that are not contents of blobs.
func (b *run) files(ctx context.Context) ([]File, error) {
	skip := b.skipped()
	var all []File
	err := fs.WalkDir(b.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was removed meanwhile
			return nil
		case err != nil:
			return err
		case name == ".":
			return ctx.Err()
		case skip(name):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case name == "tracking" && d.IsDir():
			tracked, err := b.tracking(ctx)
			all = append(all, tracked...)
			if err != nil {
				return err
			}
			return fs.SkipDir
		}
		f, err := b.describe(name, d)
		if err == nil && f.Path != "" {
			all = append(all, f)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return b.copyFiles(ctx, all)
}

// skipped says which paths are left out.
func (b *run) skipped() func(name string) bool {
	database := ""
	if file, ok := strings.CutPrefix(b.cfg.DatabaseURL(), "sqlite:"); ok {
		if rel, err := filepath.Rel(b.cfg.Home, file); err == nil && filepath.IsLocal(rel) {
			database = filepath.ToSlash(rel)
		}
	}
	cache := ""
	if rel, err := filepath.Rel(b.cfg.Home, b.cfg.Environments); err == nil && b.cfg.Environments != "" && filepath.IsLocal(rel) {
		cache = filepath.ToSlash(rel)
	}
	return func(name string) bool {
		return slices.Contains(left, name) || slices.Contains(blobDirs, name) || slices.Contains(b.o.Exclude, name) ||
			cache != "" && name == cache || database != "" && (name == database || strings.HasPrefix(name, database+"-") || name == database+".lock") ||
			strings.HasPrefix(name, ".new-") || // a file of the server that is being written
			strings.HasPrefix(name, ownTemp)
	}
}

// describe is a file without its content. Sockets, pipes and devices have no path.
func (b *run) describe(name string, d fs.DirEntry) (f File, err error) {
	info, err := d.Info()
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return f, err
	}
	f = File{Path: name, Mode: uint32(info.Mode().Perm())}
	switch {
	case info.IsDir():
		f.Folder = true
	case info.Mode()&fs.ModeSymlink != 0:
		if f.Link, err = b.root.Readlink(name); err != nil {
			return File{}, nil //nolint:nilerr // it was removed meanwhile
		}
	case info.Mode().IsRegular():
		f.Modified, f.Size = info.ModTime().UTC(), info.Size()
	default:
		return File{}, nil
	}
	return f, nil
}

// copyFiles puts the contents of files, and leaves out those that were removed meanwhile.
func (b *run) copyFiles(ctx context.Context, all []File) ([]File, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	var mu sync.Mutex
	gone := map[string]bool{}
	for i := range all {
		f := &all[i]
		if f.Folder || f.Link != "" || f.Hash != "" {
			continue
		}
		group.Go(func() error {
			err := b.copyFile(ctx, f)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotRegular) {
				mu.Lock()
				defer mu.Unlock()
				gone[f.Path] = true
				return nil
			}
			return err
		})
	}
	err := group.Wait()
	return slices.DeleteFunc(all, func(f File) bool { return gone[f.Path] }), err
}

var errNotRegular = errors.New("it is not a regular file")

// copyFile puts the content of a file as it is now. One that is as the last backup had it is not
// read.
func (b *run) copyFile(ctx context.Context, f *File) error {
	if was, ok := b.before[f.Path]; ok && was.Size == f.Size && was.Modified.Equal(f.Modified) && f.Modified.Before(b.since.Add(-2*time.Second)) && b.has(was.Hash) {
		f.Content = was.Content
		return nil
	}
	// Jobs can write to some of these folders: what is opened must be what was listed.
	named, err := b.root.Lstat(f.Path)
	if err != nil {
		return err
	}
	if !named.Mode().IsRegular() {
		return errNotRegular
	}
	in, err := b.root.OpenFile(f.Path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	if opened, err := in.Stat(); err != nil || !os.SameFile(named, opened) {
		return errors.Join(errNotRegular, err)
	}
	out, err := os.CreateTemp(b.temp, "file-")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, h), in)
	if err != nil {
		return err
	}
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		return err
	}
	f.Content = Content{Hash: hex.EncodeToString(h.Sum(nil)), Size: n}
	return b.put(ctx, f.Content, out)
}

// tracking copies the points of metrics. A server merges files into others while it runs: a copy is
// whole when no file that was listed at its beginning was gone when it was copied.
func (b *run) tracking(ctx context.Context) (all []File, err error) {
	for range trackingTries {
		all = all[:0]
		err := fs.WalkDir(b.root.FS(), "tracking", func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if strings.Contains(path.Base(name), ".seg.new") {
				return nil // not finished
			}
			f, err := b.describe(name, d)
			if err == nil && f.Path != "" {
				all = append(all, f)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		listed := len(all)
		if err == nil {
			if all, err = b.copyFiles(ctx, all); err != nil {
				return nil, err
			}
			if len(all) == listed {
				return all, nil
			}
		}
	}
	return nil, berth.Errorf(berth.Unavailable, "the files in %s change faster than they can be copied; try again", filepath.Join(b.cfg.Home, "tracking"))
}

// contentSource opens the content with a hash.
type contentSource func(ctx context.Context, hash string) (*os.File, error)

// source is where the contents of a home's blobs are: in its folder, or in its bucket.
func source(cfg config.Config, temp string) (contentSource, func(), error) {
	dir := filepath.Join(cfg.Home, "blobs")
	local := func(hash string) (f *os.File, err error) {
		for range 3 { // one may be on its way to the trash, or back
			for _, at := range []string{filepath.Join(dir, "objects", hash[:2], hash[2:]), filepath.Join(dir, "trash", hash)} {
				if f, err = os.Open(at); err == nil || !errors.Is(err, fs.ErrNotExist) {
					return f, err
				}
			}
		}
		return nil, err
	}
	if cfg.Blobs == "" {
		return func(_ context.Context, hash string) (*os.File, error) { return local(hash) }, func() {}, nil
	}
	b, err := openBucket(cfg)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, hash string) (*os.File, error) {
		if f, err := local(hash); err == nil {
			return f, nil
		}
		path := filepath.Join(temp, "content-"+hash)
		if err := b.Get(ctx, hash, path); err != nil {
			return nil, err
		}
		f, err := os.Open(path)
		return f, errors.Join(err, os.Remove(path)) // it stays readable
	}, func() { b.Close() }, nil
}

// openBucket opens the bucket that a configuration names, with the key in the home.
func openBucket(cfg config.Config) (*bucket.Bucket, error) {
	id, secret, err := config.ReadKey(filepath.Join(cfg.Home, "blobs.key"))
	if err != nil {
		return nil, err
	}
	return bucket.Open(bucket.Options{URI: cfg.Blobs, Endpoint: cfg.BlobsEndpoint, Region: cfg.BlobsRegion, KeyID: id, Secret: secret})
}
