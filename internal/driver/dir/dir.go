// Package dir is the directory on the server that a driver of an attached cluster has for itself:
// the id that tells the server's work there from that of others, and locks that keep a server which
// no longer leads from starting anything.
package dir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berthml/berth"
)

// ID is an id that stays as long as the directory does.
func (d *Dir) ID() (string, error) {
	path := filepath.Join(d.path, "id")
	b, err := os.ReadFile(path)
	if err == nil && len(b) > 0 {
		return string(b), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return "", err
	}
	id := berth.NewGUID()
	return id, WriteFile(path, []byte(id))
}

// WriteFile puts a file in its place whole, and is sure of it.
func WriteFile(path string, b []byte) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) {
		return err
	}
	return nil
}
