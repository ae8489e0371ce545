//go:build unix

package cache_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthml/berth/internal/runner/cache"
)

// TestProgramsOfCode: where a tree's programs are to be executable they are, also when the same
// files are here as data; of data nothing is, and no content is there twice.
func TestProgramsOfCode(t *testing.T) {
	for _, dataFirst := range []bool{true, false} {
		for _, name := range []string{"v1", ""} {
			t.Run(fmt.Sprint(dataFirst, name), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "cache")
				s := &server{files: map[string]string{"run": "#!/bin/sh\n", "tool": "\x7fELF and more", "x": "data"}}
				c := open(t, dir, cache.Options{})
				keys := map[bool]string{}
				for range 2 { // the second time they are here
					for _, programs := range []bool{!dataFirst, dataFirst} {
						src := s.source(name)
						src.Programs = programs
						u, err := c.Get(t.Context(), src)
						if err != nil {
							t.Fatal(err)
						}
						defer u.Close()
						if len(u.Warnings) > 0 || keys[programs] != "" && (!u.Cached || u.Key != keys[programs]) {
							t.Errorf("%+v", u)
						}
						keys[programs] = u.Key
						for file, is := range map[string]bool{"run": programs, "tool": programs, "x": false} {
							if info := look(t, u.Dir, file); (info.Mode()&0o100 != 0) != is {
								t.Errorf("programs %v: %s has mode %v", programs, file, info.Mode())
							}
						}
					}
				}
				if keys[true] == keys[false] {
					t.Error("code and data are one tree")
				}
				content := filepath.Join(dir, "content", hash("data")[:2], hash("data")[2:])
				for _, key := range keys {
					if !os.SameFile(look(t, content), look(t, dir, "trees", key, "files", "x")) {
						t.Error("a file that is no program is another copy")
					}
				}
				h := hash("\x7fELF and more")
				if !os.SameFile(look(t, dir, "content", h[:2], h[2:]), look(t, dir, "trees", keys[false], "files", "tool")) {
					t.Error("a program in data is another copy")
				}
			})
		}
	}
}

func look(t *testing.T, parts ...string) fs.FileInfo {
	t.Helper()
	info, err := os.Lstat(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return info
}
