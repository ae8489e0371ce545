package data

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/berthml/berth"
)

// Below is a client that reaches files of this machine only below dir, whatever links there are; an
// empty dir is no limit.
func (c *Client) Below(dir string) *Client {
	if dir == "" {
		return c
	}
	limited := *c
	limited.below = dir
	return &limited
}

// Within looks at a path of this machine, and refuses one that links lead out of below, unless that
// is empty.
func Within(below, path string) (fs.FileInfo, error) {
	if below == "" {
		return os.Stat(path)
	}
	root, rel, err := enter(below, path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.Stat(rel)
}

// enter opens the folder that a path must not leave, and says what the path is called there.
func enter(below, path string) (root *os.Root, rel string, err error) {
	if rel, err = filepath.Rel(below, path); err != nil || !filepath.IsLocal(rel) {
		return nil, "", berth.Errorf(berth.Denied, "%s is not inside %s", path, below)
	}
	root, err = os.OpenRoot(below)
	return root, rel, err
}

// openDir opens a folder of this machine for reading.
func (c *Client) openDir(path string) (*Dir, error) {
	if c.below == "" {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil, err
		}
		return OpenDir(real, "")
	}
	root, rel, err := enter(c.below, path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	sub, err := root.OpenRoot(rel)
	if err != nil {
		return nil, err
	}
	return &Dir{sub, path}, nil
}

// openFile opens a file of this machine for reading.
func (c *Client) openFile(path string) (f *os.File, err error) {
	if c.below == "" {
		f, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	} else {
		var root *os.Root
		var rel string
		if root, rel, err = enter(c.below, path); err != nil {
			return nil, err
		}
		defer root.Close()
		f, err = root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}
	if err != nil {
		return nil, err
	}
	return regular(f, path)
}

// makeDir makes a folder of this machine and opens it.
func (c *Client) makeDir(path string) (*os.Root, error) {
	if c.below == "" {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return nil, err
		}
		return os.OpenRoot(path)
	}
	root, rel, err := enter(c.below, path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := root.MkdirAll(rel, 0o755); err != nil {
		return nil, err
	}
	return root.OpenRoot(rel)
}
