package host

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestLogs gives the log of one task back and opens that of the next: it is the same file only if
// nothing was written, nobody reads it, and the next has none.
func TestLogs(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, old, next string)
		clean   bool
		same    bool
	}{
		"empty":     {func(*testing.T, string, string) {}, true, true},
		"not clean": {func(*testing.T, string, string) {}, false, false},
		"written": {func(t *testing.T, old, _ string) {
			if err := os.WriteFile(old, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, true, false},
		"read": {func(t *testing.T, old, _ string) {
			f, err := os.Open(old)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
		}, true, false},
		"linked": {func(t *testing.T, old, next string) {
			if err := os.Link(old, next+".link"); err != nil {
				t.Fatal(err)
			}
		}, true, false},
		"there": {func(t *testing.T, _, next string) {
			if err := os.WriteFile(next, []byte("kept"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, true, false},
		"deleted": {func(t *testing.T, old, _ string) {
			if err := os.Remove(old); err != nil {
				t.Fatal(err)
			}
		}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := &logs{}
			defer l.close()
			dir := t.TempDir()
			old, next := filepath.Join(dir, "old"), filepath.Join(dir, "next")
			fd, err := l.take(old)
			if err != nil {
				t.Fatal(err)
			}
			was := inode(t, fd)
			syscall.Close(fd)
			l.give(old, c.clean)
			c.prepare(t, old, next)
			content, _ := os.ReadFile(next)
			if fd, err = l.take(next); err != nil {
				t.Fatal(err)
			}
			defer syscall.Close(fd)
			if same := inode(t, fd) == was; same != c.same && name != "deleted" { // its number may be given out again
				t.Errorf("the same file: %v", same)
			}
			if _, err := syscall.Write(fd, []byte("next")); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(next); err != nil || string(b) != string(content)+"next" {
				t.Errorf("%q, %v", b, err)
			}
			if b, err := os.ReadFile(old); name == "written" && string(b) != "x" || c.same && err == nil {
				t.Errorf("the old log has %q, %v", b, err)
			}
		})
	}
}

func inode(t *testing.T, fd int) uint64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}
