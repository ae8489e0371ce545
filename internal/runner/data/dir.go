package data

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"
)

// Dir is a directory that a command could write to, opened. Nothing outside of it is reached
// through it, whatever links the command made in it, and at whatever moment.
type Dir struct {
	root *os.Root
	path string
}

// LeftOut is the error of something that is not sent because of what it is.
type LeftOut struct{ Name, Why string }

func (e *LeftOut) Error() string { return e.Name + " " + e.Why }

const (
	whyOut      = "is a link to a path outside the folder"
	whyNowhere  = "is a broken link"
	whyFolder   = "is a link to a folder"
	whyOdd      = "is not a regular file"
	whyNoFolder = "is no longer a folder"
	whyDeep     = "is nested too deeply (a path has at most 100 folders and 1,024 characters)"
)

// OpenDir opens the directory rel below base. A link in the place of base, or of a part of rel, is
// not followed: that is a LeftOut.
func OpenDir(base, rel string) (*Dir, error) {
	root, err := os.OpenRoot(base)
	if err != nil {
		return nil, notFolder(base, err)
	}
	named, err := os.Lstat(base)
	if err = same(root, named, err); err != nil {
		root.Close()
		return nil, notFolder(base, err)
	}
	d := &Dir{root, base}
	for part := range strings.SplitSeq(filepath.ToSlash(rel), "/") {
		if part == "" || part == "." {
			continue
		}
		next, err := d.root.OpenRoot(part)
		if err == nil {
			named, err = d.root.Lstat(part)
			if err = same(next, named, err); err != nil {
				next.Close()
			}
		} else if info, lerr := d.root.Lstat(part); lerr == nil && !info.IsDir() {
			err = syscall.ENOTDIR
		}
		d.root.Close()
		if err != nil {
			return nil, notFolder(filepath.Join(base, rel), err)
		}
		d.root, d.path = next, filepath.Join(d.path, part)
	}
	return d, nil
}

// same makes sure that what was opened under a name is the directory that has this name, not one a
// link led to. It is compared after the opening, so that it does not matter when the name was given
// to something else.
func same(opened *os.Root, named fs.FileInfo, err error) error {
	if err != nil {
		return err
	}
	info, err := opened.Stat(".")
	if err == nil && (!named.IsDir() || !os.SameFile(info, named)) {
		err = syscall.ENOTDIR
	}
	return err
}

func notFolder(path string, err error) error {
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return &LeftOut{path, whyNoFolder}
	}
	return err
}

// Folders below more than maxFolders others, or with a path of more than maxPath characters, which
// is what the name of a blob has at most, are not entered: a walk keeps the path of each folder
// that it is in, so without bounds a deep tree would not fit into memory.
const (
	maxFolders = 100
	maxPath    = 1024
)

// walk is [fs.WalkDir] for a directory, until ctx ends. deep gets the folders that are not entered.
func (d *Dir) walk(ctx context.Context, deep func(rel string) error, f fs.WalkDirFunc) error {
	return fs.WalkDir(d.root.FS(), ".", func(rel string, e fs.DirEntry, err error) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if e != nil && e.IsDir() && (strings.Count(rel, "/") >= maxFolders || utf8.RuneCountInString(rel) > maxPath) {
			if err := deep(rel); err != nil {
				return err
			}
			return fs.SkipDir
		}
		return f(rel, e, err)
	})
}

// Close lets go of the directory.
func (d *Dir) Close() error { return d.root.Close() }

// inside is the name of the file that name stands for. A link that is written with the directory's
// full path stays in it too, though [os.Root] takes every such path for a way out.
func (d *Dir) inside(name string) string {
	for range 8 {
		to, err := d.root.Readlink(name)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(d.path, filepath.Dir(name), to)
		}
		rel, err := filepath.Rel(d.path, to)
		if err != nil || !filepath.IsLocal(rel) {
			break
		}
		name = rel
	}
	return name
}

// look says whether name is sent: nil for a file, or for a link to one inside.
func (d *Dir) look(name string, kind fs.FileMode) error {
	if kind.IsRegular() {
		return nil
	}
	if kind&fs.ModeSymlink == 0 {
		return &LeftOut{name, whyOdd}
	}
	info, err := d.root.Stat(d.inside(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &LeftOut{name, whyNowhere}
	case err != nil:
		return &LeftOut{name, whyOut}
	case info.IsDir():
		return &LeftOut{name, whyFolder}
	case !info.Mode().IsRegular():
		return &LeftOut{name, whyOdd}
	}
	return nil
}

// open opens a file for reading. What it turns out to be is looked at once it is open; opening it
// waits for nobody.
func (d *Dir) open(name string) (*os.File, error) {
	info, err := d.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if err := d.look(name, info.Mode()); err != nil {
		return nil, err
	}
	f, err := d.root.OpenFile(d.inside(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return regular(f, name)
}

// OpenFile opens a file for reading unless it is a link or something else than a file, which is a
// LeftOut. It waits for nobody.
func OpenFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, &LeftOut{path, "is a link"}
	}
	if err != nil {
		return nil, err
	}
	return regular(f, path)
}

func regular(f *os.File, name string) (*os.File, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &LeftOut{name, whyOdd}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
