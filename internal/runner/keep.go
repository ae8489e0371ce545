package runner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Launch.Keep is shared by the attempts at a job: "outputs" in it stands for ./outputs of the
// command, and "named" has a folder for each named output. What one attempt wrote is there for the
// next.

// kept is what stands for ./outputs, empty when nothing does.
func (t *task) kept() string {
	if t.l.Keep == "" {
		return ""
	}
	return filepath.Join(t.l.Keep, "outputs")
}

// linkKept puts the kept directory in the place of ./outputs. Files that came there with the code
// are the start of the first attempt, and nothing to later ones.
func (t *task) linkKept() error {
	kept := t.kept()
	if kept == "" {
		return nil
	}
	own := filepath.Join(t.workdir(), "outputs")
	info, err := os.Lstat(kept)
	if err == nil && !info.IsDir() { // an earlier attempt put it there
		if err = os.Remove(kept); err == nil {
			err = fs.ErrNotExist
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(t.l.Keep, 0o700); err != nil {
			return err
		}
		next, err := os.MkdirTemp(t.l.Keep, ".outputs-")
		if err != nil {
			return err
		}
		if err := os.CopyFS(next, os.DirFS(own)); err != nil {
			return err
		}
		// Another node of the job, where they share it, may have been faster: then its directory is
		// not empty, or as empty as this one.
		if err := os.Rename(next, kept); err != nil {
			if _, serr := os.Lstat(kept); serr != nil {
				return err
			}
			_ = os.RemoveAll(next)
		}
	} else if err != nil {
		return err
	}
	if err := os.RemoveAll(own); err != nil {
		return err
	}
	return os.Symlink(kept, own)
}
