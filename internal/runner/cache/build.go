package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
)

// workers is how many files are linked or copied at once: the work is the kernel's.
var workers = sync.OnceValue(func() int { return min(8, max(2, runtime.NumCPU())) })

// build makes a tree in tmp and moves it to its place. Where one came meanwhile, that one stays,
// and has to be checked.
func (c *Cache) build(ctx context.Context, key string, text []byte, t *berth.Tree, src Source) (b built, err error) {
	if err := c.prepare(); err != nil {
		return b, err
	}
	tmp := c.temp()
	defer func() {
		if err != nil {
			_ = RemoveAll(tmp)
		}
	}()
	files := filepath.Join(tmp, "files")
	if err := os.MkdirAll(files, 0o700); err != nil {
		return b, full(err)
	}
	if err := makeDirs(files, t); err != nil {
		return b, err
	}
	st := &state{boot: c.boot, files: make([]fileState, len(t.Files))}
	if err := c.fill(ctx, files, t, all(t), src, st); err != nil {
		return b, err
	}
	if c.o.Protect {
		if err := protect(files, t); err != nil {
			return b, err
		}
	}
	if err := os.WriteFile(filepath.Join(tmp, "manifest"), text, 0o600); err != nil {
		return b, full(err)
	}
	if err := st.recordStat(ctx, files, t); err != nil {
		return b, err
	}
	st.weigh(t)
	if err := st.save(filepath.Join(tmp, "state")); err != nil {
		return b, full(err)
	}
	if err := newSummary(t, st).save(filepath.Join(tmp, "summary")); err != nil {
		return b, full(err)
	}
	if err := c.prepare(); err != nil { // it may have been deleted meanwhile
		return b, err
	}
	err = os.Rename(tmp, c.path("trees", key))
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return built{}, RemoveAll(tmp)
	}
	return built{fresh: true, linked: st.linked()}, full(err)
}

// built is what came of building a tree.
type built struct {
	fresh  bool // it is the one that was built
	linked bool // its contents are the server's own
}

// all are the numbers of the files of a tree that are not folders.
func all(t *berth.Tree) []int {
	list := make([]int, 0, len(t.Files))
	for i := range t.Files {
		if !t.Files[i].Folder() {
			list = append(list, i)
		}
	}
	return list
}

// makeDirs makes the folders of a tree.
func makeDirs(root string, t *berth.Tree) error {
	made := map[string]bool{".": true}
	for i := range t.Files {
		f := &t.Files[i]
		dir := path.Dir(f.Path) // of a folder: itself
		if made[dir] {
			continue
		}
		if err := os.MkdirAll(filepath.Join(root, filepath.FromSlash(dir)), 0o700); err != nil {
			return oddName(f.Path, err)
		}
		for d := dir; !made[d]; d = path.Dir(d) {
			made[d] = true
		}
	}
	return nil
}

// fill puts files of a tree below root: as links to what is on this disk, and fetches the rest.
func (c *Cache) fill(ctx context.Context, root string, t *berth.Tree, list []int, src Source, st *state) error {
	dest := func(i int) string { return filepath.Join(root, filepath.FromSlash(t.Files[i].Path)) }
	var mu sync.Mutex
	var missing []int
	err := each(ctx, len(list), func(n int) error {
		i := list[n]
		how, err := c.place(&t.Files[i], dest(i), src.Objects)
		if err == nil && how == none {
			mu.Lock()
			missing = append(missing, i)
			mu.Unlock()
			return nil
		}
		if st.files[i].how = how; err != nil {
			return err
		}
		return c.finish(&t.Files[i], dest(i), src, &st.files[i])
	})
	if err != nil || len(missing) == 0 {
		return err
	}
	return c.fetch(ctx, t, missing, dest, src, st)
}

// finish makes a file that is in its place executable where it is to be, and is a program.
func (c *Cache) finish(f *berth.TreeFile, at string, src Source, st *fileState) error {
	if !src.Programs {
		return nil
	}
	own, err := c.program(f, at)
	if own {
		st.how = copied
	}
	return err
}

// how a file came into a tree.
type how byte

const (
	none   how = iota
	linked     // it is the server's own object
	copied     // it is a content of the cache
)

// place puts a file into a tree that is on this disk; none when it is not, or not as it should be.
func (c *Cache) place(f *berth.TreeFile, to, objects string) (how, error) {
	if objects != "" {
		from := filepath.Join(objects, f.Hash[:2], f.Hash[2:])
		// A tree that tasks see as it is, with nothing but permissions to protect it, has no files
		// of the server's.
		if !c.o.Protect && !c.suspected(f.Hash) {
			switch ok, err := link(f, from, to); {
			case err != nil:
				return none, err
			case ok:
				return linked, nil
			}
		}
		// Another file system, or an object that has as many links as it can: a copy, without a
		// server in between.
		if err := copyChecked(f, from, to); err == nil {
			return copied, nil
		} else if name := oddName(f.Path, err); berth.CodeOf(name) == berth.Invalid || berth.IsDiskFull(err) {
			return none, full(name)
		}
	}
	// Contents are not synced when they are written: what was there when the machine lost its power
	// may be anything.
	if _, sum, err := sumFile(c.content(f)); err != nil || sum != f.Hash {
		return none, nil //nolint:nilerr // it is fetched
	}
	ok, err := link(f, c.content(f), to)
	if !ok || err != nil {
		return none, err
	}
	return copied, nil
}

// content is where the cache has the content of a file.
func (c *Cache) content(f *berth.TreeFile) string { return c.path("content", f.Hash[:2], f.Hash[2:]) }

// link gives a content one more name; false when that cannot be done, or it does not have the size
// it should have.
func link(f *berth.TreeFile, from, to string) (bool, error) {
	switch err := os.Link(from, to); {
	case err == nil:
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.ENOSPC):
		return false, oddName(f.Path, full(err))
	default:
		return false, nil
	}
	info, err := os.Lstat(to)
	if err == nil && info.Mode().IsRegular() && info.Size() == f.Size {
		return true, nil
	}
	return false, os.Remove(to)
}

// fetch brings contents from the server to the cache, checks them, and links them.
func (c *Cache) fetch(ctx context.Context, t *berth.Tree, missing []int, dest func(int) string, src Source, st *state) error {
	if src.Fetch == nil {
		return berth.Errorf(berth.NotFound, "the content of %s is not on this node", t.Files[missing[0]].Path)
	}
	tmp := c.temp()
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return full(err)
	}
	defer os.RemoveAll(tmp)
	// The same content under several names comes once.
	first := map[string]int{}
	var want []int
	for _, i := range missing {
		if _, ok := first[c.content(&t.Files[i])]; !ok {
			first[c.content(&t.Files[i])] = i
			want = append(want, i)
		}
	}
	part := func(i int) string { return filepath.Join(tmp, fmt.Sprint(i)) }
	c.makeRoom(sizeOf(t, want))
	if err := src.Fetch(ctx, t, want, part); err != nil {
		return full(err)
	}
	err := each(ctx, len(want), func(n int) error { return verify(&t.Files[want[n]], part(want[n])) })
	if err != nil {
		return err
	}
	// A content without links may be evicted at any time, so it gets its place when it has some.
	err = each(ctx, len(missing), func(n int) error {
		i := missing[n]
		f := &t.Files[i]
		from := part(first[c.content(f)])
		ok, err := link(f, from, dest(i))
		if err == nil && !ok { // a file system without links, or too many of them
			err = copyChecked(f, from, dest(i))
		}
		if st.files[i].how = copied; err != nil {
			return full(err)
		}
		return c.finish(f, dest(i), src, &st.files[i])
	})
	if err != nil {
		return err
	}
	return each(ctx, len(want), func(n int) error { return c.keep(&t.Files[want[n]], part(want[n])) })
}

// verify says whether a file that was fetched is what it should be.
func verify(f *berth.TreeFile, from string) error {
	size, sum, err := sumFile(from)
	if err != nil {
		return err
	}
	if size != f.Size || sum != f.Hash {
		err := berth.Errorf(berth.Unavailable, "%s does not match its manifest: got %d bytes with hash %s, want %d with %s; it is damaged where it came from, and has to be restored there", f.Path, size, sum, f.Size, f.Hash)
		err.Err = errMismatch
		return err
	}
	return nil
}

// errMismatch is the cause of an error about a file that is not what the manifest says.
var errMismatch = errors.New("it is not what the manifest says")

// keep makes a file that was fetched a content of the cache.
func (c *Cache) keep(f *berth.TreeFile, from string) error {
	to := c.content(f)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return full(err)
	}
	return full(os.Rename(from, to))
}

// copyChecked copies a content and makes sure that it is that.
func copyChecked(f *berth.TreeFile, from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, h), in)
	if err = errors.Join(err, out.Close()); err == nil && (n != f.Size || hex.EncodeToString(h.Sum(nil)) != f.Hash) {
		err = berth.Errorf(berth.Internal, "the content of %s is damaged", f.Path)
	}
	if err != nil {
		_ = os.Remove(to)
	}
	return err
}

func sumFile(path string) (size int64, sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	size, err = io.Copy(h, f)
	return size, hex.EncodeToString(h.Sum(nil)), err
}

// protect takes the right to write from a tree.
func protect(root string, t *berth.Tree) error {
	for i := range t.Files {
		f := &t.Files[i]
		if f.Folder() {
			continue
		}
		file, mode := filepath.Join(root, filepath.FromSlash(f.Path)), fs.FileMode(0o400)
		if info, err := os.Lstat(file); err == nil && info.Mode()&0o100 != 0 {
			mode = 0o500
		}
		if err := os.Chmod(file, mode); err != nil {
			return err
		}
	}
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return os.Chmod(p, 0o500)
	})
}

// oddName says of an error that a name is the reason, where it is.
func oddName(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTDIR):
		return berth.Errorf(berth.Invalid, "%s exists twice on this file system, as a file and a folder or in names that differ only in case; rename one of them", name)
	case errors.Is(err, syscall.ENAMETOOLONG):
		last := path.Base(strings.TrimSuffix(name, "/"))
		return berth.Errorf(berth.Invalid, "%s has a name of %d bytes, too long for this file system; rename it", name, len(last))
	}
	return err
}

// full says of an error that the disk is, where it is.
func full(err error) error {
	if berth.IsDiskFull(err) && berth.CodeOf(err) != berth.Unavailable {
		return berth.Errorf(berth.Unavailable, "the disk of the node is full: %w", err)
	}
	return err
}

// each calls f for 0 … n-1, several at once.
func each(ctx context.Context, n int, f func(int) error) error {
	return divided(ctx, n, 16, func(from, to int) error {
		for i := from; i < to; i++ {
			if err := f(i); err != nil {
				return err
			}
		}
		return nil
	})
}

// spans calls f for long parts of 0 … n-1, several at once.
func spans(ctx context.Context, n int, f func(from, to int) error) error {
	return divided(ctx, n, 256, f)
}

// divided calls f for parts of 0 … n-1, several at once.
func divided(ctx context.Context, n, part int, f func(from, to int) error) error {
	if n <= 2*part {
		if err := f(0, n); err != nil {
			return err
		}
		return ctx.Err()
	}
	g, gctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range workers() {
		g.Go(func() error {
			for gctx.Err() == nil {
				at := int(next.Add(int64(part))) - part
				if at >= n {
					return nil
				}
				if err := f(at, min(at+part, n)); err != nil {
					return err
				}
			}
			return context.Cause(gctx)
		})
	}
	return g.Wait()
}
