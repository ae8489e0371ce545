package data

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"

	"github.com/berthml/berth"
)

// source is an open file that is sent.
type source interface {
	io.ReaderAt
	Stat() (fs.FileInfo, error)
}

// State tells whether a file was written to since it was last looked at.
type State struct{ size, modified int64 }

func stateOf(info fs.FileInfo) State { return State{info.Size(), info.ModTime().UnixNano()} }

// Changed is the error of a file that was written to while it was sent. What was sent of it was not
// kept.
type Changed struct{ Name string }

func (e *Changed) Error() string { return e.Name + " was written to while it was sent" }

// steady is an open file that may be read as long as nobody writes to it. What was read is checked
// before it is passed on, so a request with a part of another state is never completed.
type steady struct {
	f    *os.File
	name string
	was  State
	stop func() error // not nil when it should be read no further
}

func (s steady) Stat() (fs.FileInfo, error) {
	info, err := s.f.Stat()
	if err == nil && stateOf(info) != s.was {
		err = &Changed{s.name}
	}
	return info, err
}

func (s steady) ReadAt(p []byte, off int64) (int, error) {
	if err := s.stop(); err != nil {
		return 0, err
	}
	n, err := s.f.ReadAt(p, off)
	if _, serr := s.Stat(); serr != nil {
		return 0, serr
	}
	return n, err
}

// Scan calls f for each regular file in the directory, which may be written to meanwhile. complete
// says that nothing was left out because it cannot be read. Folders that are nested too deeply are
// left out: none of their files is ever sent.
func (d *Dir) Scan(ctx context.Context, f func(rel string, s State) error) (complete bool, err error) {
	complete = true
	err = d.walk(ctx, func(string) error { return nil }, func(rel string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && rel != ".":
			return nil
		case errors.Is(err, fs.ErrPermission) && rel != ".":
			complete = false
			return nil
		case err != nil || !e.Type().IsRegular():
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return f(rel, stateOf(info))
	})
	return complete, err
}

// Has says whether the directory has something of a name.
func (d *Dir) Has(name string) bool {
	_, err := d.root.Lstat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// openSteady opens a file that is to be in a state.
func (d *Dir) openSteady(ctx context.Context, name string, was State) (steady, error) {
	f, err := d.open(name)
	if err != nil {
		return steady{}, err
	}
	s := steady{f, name, was, ctx.Err}
	if _, err := s.Stat(); err != nil {
		f.Close()
		return steady{}, err
	}
	return s, nil
}

// PutSteady sends a file of a directory to rawURL if it is in a state, and stays in it. Otherwise
// it is Changed, and nothing is replaced.
func (c *Client) PutSteady(ctx context.Context, d *Dir, name, rawURL string, was State) error {
	rawURL = trimSlash(rawURL)
	f, err := d.openSteady(ctx, name, was)
	if err != nil {
		return err
	}
	defer f.f.Close()
	to, ok, err := berth.FileURL(rawURL)
	if err != nil {
		return err
	}
	if !ok {
		return describe("sending", rawURL, c.send(ctx, f, fixed(rawURL), name))
	}
	target, err := c.makeDir(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer target.Close()
	return replace(target, filepath.Base(to), f)
}

// PutSteady is [Client.PutSteady]; rel is the name below the place, empty for the place itself.
func (o *Outside) PutSteady(ctx context.Context, d *Dir, name, rel string, was State) error {
	f, err := d.openSteady(ctx, name, was)
	if err != nil {
		return err
	}
	defer f.f.Close()
	return o.describe("writing to", o.put(ctx, f, rel, o.one(berth.OutsideRequest{Do: berth.OutsidePut, Name: rel})))
}

// Remove deletes the file at rawURL, if it is there.
func (c *Client) Remove(ctx context.Context, rawURL string) error {
	rawURL = trimSlash(rawURL)
	to, ok, err := berth.FileURL(rawURL)
	if err != nil {
		return err
	}
	if ok {
		return c.removeFile(to)
	}
	err = c.retry(ctx, func() error { return c.delete(ctx, rawURL) })
	if berth.CodeOf(err) == berth.NotFound {
		return nil
	}
	return describe("deleting", rawURL, err)
}

func (c *Client) removeFile(name string) error {
	below := c.below
	if below == "" {
		below = filepath.Dir(name)
	}
	root, rel, err := enter(below, name)
	if err == nil {
		defer root.Close()
		err = root.Remove(rel)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Remove is [Client.Remove]; rel is as for PutSteady.
func (o *Outside) Remove(ctx context.Context, rel string) error {
	to := o.one(berth.OutsideRequest{Do: berth.OutsideDelete, Name: rel})
	err := o.c.retry(ctx, func() error {
		u, err := to(ctx)
		if err != nil {
			return err
		}
		return o.c.delete(ctx, u)
	})
	if berth.CodeOf(err) == berth.NotFound {
		return nil
	}
	return o.describe("deleting from", err)
}

func (c *Client) delete(ctx context.Context, u string) error {
	res, err := c.do(ctx, http.MethodDelete, u, nil, nil)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 4<<10))
	return res.Body.Close()
}

// replace puts a file at a path below a directory. Until all of it is there it has another name, so
// that nobody takes a part of it for the file.
func replace(target *os.Root, rel string, in source) error {
	if info, err := target.Lstat(rel); err == nil && !info.Mode().IsRegular() {
		if f, ok := in.(*os.File); ok { // a link that somebody made there is followed, inside
			return copyTo(target, rel, f)
		}
		return &LeftOut{rel, whyOdd}
	}
	info, err := in.Stat()
	if err != nil {
		return err
	}
	dir := filepath.Dir(rel)
	if dir != "." {
		if err := target.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	part := path.Join(filepath.ToSlash(dir), ".berth-"+rand.Text())
	out, err := target.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm()|0o600)
	if err != nil {
		return err
	}
	var from io.Reader = io.NewSectionReader(in, 0, info.Size())
	if f, ok := in.(*os.File); ok {
		from = f
	}
	_, err = io.Copy(out, from)
	if err = errors.Join(err, out.Close()); err == nil {
		err = target.Rename(part, rel)
	}
	if err != nil {
		_ = target.Remove(part)
	}
	return err
}
