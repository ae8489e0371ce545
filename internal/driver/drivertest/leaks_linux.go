package drivertest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Leaks fails t for everything that is left of nodes whose directories were below dir: processes
// that name a file there in their command line, environment or working directory, control groups
// whose names begin with groups, sockets, files.
func Leaks(t testing.TB, dir, groups string) {
	t.Helper()
	left := leaks(dir, groups)
	for end := time.Now().Add(time.Minute); len(left) > 0 && time.Now().Before(end); left = leaks(dir, groups) {
		time.Sleep(10 * time.Millisecond) // what was killed needs a moment to be gone
	}
	for _, l := range left {
		t.Errorf("leaked: %s", l)
	}
}

func leaks(dir, groups string) []string {
	left := processes(dir)
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.HasPrefix(e.Name(), groups) {
			left = append(left, "control group "+p)
		}
		return nil
	})
	if b, err := os.ReadFile("/proc/net/unix"); err == nil {
		for l := range strings.Lines(string(b)) {
			if i := strings.Index(l, dir+"/"); i >= 0 {
				left = append(left, "socket "+strings.TrimSpace(l[i:]))
			}
		}
	}
	_ = filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err == nil && p != dir {
			left = append(left, "file "+p)
		}
		return nil
	})
	return left
}

// processes lists the living processes that have to do with a directory, this one apart.
func processes(dir string) (list []string) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		if filepath.Base(p) == strconv.Itoa(os.Getpid()) {
			continue
		}
		cmdline, _ := os.ReadFile(p + "/cmdline")
		environ, _ := os.ReadFile(p + "/environ")
		cwd, _ := os.Readlink(p + "/cwd")
		if strings.Contains(string(cmdline)+"\x00"+string(environ)+"\x00"+cwd, dir+"/") {
			list = append(list, "process "+filepath.Base(p)+": "+strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return list
}
