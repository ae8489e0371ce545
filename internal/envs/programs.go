package envs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
)

// pythonVar names, for the programs that layers share, the interpreter of the layer they run in.
const pythonVar = "BERTH_PYTHON"

// shared is a directory of programs that run the scripts of a Python on the interpreter that
// pythonVar names. It is made once for all layers, and named by its content. Jobs may be able to
// write to it, so that it is looked at before each use.
type shared struct {
	path, tmp string
	programs  map[string]string // their texts

	mu    sync.Mutex
	looks map[string]stamp // of the directory and the programs when they were last read; nil before
}

// stamp is what tells a file that was changed from one that was not.
type stamp struct {
	inode, size, modified, changed int64
}

// look is the stamp of the directory and of what is in it.
func look(dir string) (map[string]stamp, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[string]stamp{}
	for _, name := range append([]string{"."}, names(entries)...) {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() && name != "." {
			return nil, errors.New("not a regular file")
		}
		out[name] = stampOf(info)
	}
	return out, nil
}

func names(entries []os.DirEntry) (out []string) {
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// right says whether the directory has the programs, and nothing else.
func (s *shared) right() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := look(s.path)
	if err != nil {
		return false
	}
	if s.looks != nil && maps.Equal(now, s.looks) {
		return true
	}
	if len(now) != len(s.programs)+1 {
		return false
	}
	for name, text := range s.programs {
		if b, err := os.ReadFile(filepath.Join(s.path, name)); err != nil || string(b) != text {
			return false
		}
	}
	s.looks = now // taken before the programs were read
	return true
}

// plainPath is a path that means itself within double quotes of a shell.
var plainPath = pattern(`^[A-Za-z0-9_./+@ -]+$`)

// share is where the programs of b are for all layers; nil if each layer needs its own.
func (c *Cache) share(b *Base) *shared {
	s, sum := &shared{tmp: c.path("tmp"), programs: map[string]string{}}, sha256.New()
	for _, x := range b.scripts {
		if !plainPath().MatchString(b.exe + x.path) {
			return nil
		}
		text := fmt.Sprintf("#!/bin/sh\nexec \"${%s:-%s}\" \"%s\" \"$@\"\n", pythonVar, b.exe, x.path)
		fmt.Fprintf(sum, "%q %q", x.name, text)
		s.programs[x.name] = text
	}
	if len(s.programs) == 0 {
		return nil
	}
	s.path = c.path("programs", hex.EncodeToString(sum.Sum(nil)[:16]))
	return s
}

// dir is the directory, made if it is not there; empty if nothing is shared.
func (s *shared) dir() (string, error) {
	if s == nil {
		return "", nil
	}
	if s.right() {
		return s.path, nil
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(s.path), 0o755), os.MkdirAll(s.tmp, 0o700)); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(s.tmp, "programs")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	for name, text := range s.programs {
		if err := os.WriteFile(filepath.Join(tmp, name), []byte(text), 0o755); err != nil {
			return "", err
		}
	}
	if err := os.RemoveAll(s.path); err != nil {
		return "", err
	}
	if err := os.Rename(tmp, s.path); err != nil && !errors.Is(err, fs.ErrExist) { // another process may have made the same
		return "", err
	}
	return s.path, nil
}
