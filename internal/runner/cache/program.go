package cache

import (
	"io"
	"os"
	"path"
	"path/filepath"

	"github.com/berthml/berth"
)

// Storage keeps no permissions, so a program would come without the right to be executed. What is
// one is seen by how it begins; only files of code that are called as programs are looked at.

// programNames are the extensions that programs have.
var programNames = map[string]bool{
	"": true, ".sh": true, ".bash": true, ".zsh": true, ".ksh": true, ".csh": true, ".fish": true, ".py": true, ".pl": true, ".rb": true,
	".R": true, ".r": true, ".jl": true, ".js": true, ".lua": true, ".awk": true, ".out": true, ".run": true,
}

// programMode is that of a program.
const programMode = 0o700

// isProgram reports whether a file is a script that names its interpreter, or a program of Linux.
func isProgram(file string) bool {
	if !programNames[path.Ext(filepath.Base(file))] {
		return false
	}
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [4]byte
	n, _ := io.ReadFull(f, head[:]) // a shorter file is none
	return n >= 2 && string(head[:2]) == "#!" || string(head[:n]) == "\x7fELF"
}

// program makes a file of a tree executable where it is a program. Permissions belong to the
// content, which other trees and the server have too, so it becomes a copy.
func (c *Cache) program(f *berth.TreeFile, at string) (copied bool, err error) {
	if f.Size < 2 || !isProgram(at) {
		return false, nil
	}
	tmp := c.temp()
	if err := copyChecked(f, at, tmp); err != nil {
		return false, full(err)
	}
	if err = os.Chmod(tmp, programMode); err == nil {
		err = os.Rename(tmp, at)
	}
	if err != nil {
		_ = os.Remove(tmp)
	}
	return true, full(err)
}

// Programs makes the programs in a folder executable that came there without a tree.
func Programs(dir string) error {
	return filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !isProgram(p) {
			return err
		}
		return os.Chmod(p, programMode)
	})
}
