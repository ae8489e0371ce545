//go:build unix

package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth"
)

// TestLongHome: the socket of a home with a long path lies in a folder that only we can have made.
func TestLongHome(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	run := "/" + strings.Repeat("long/", 30) + "run"
	path, err := socketPath(run)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 || filepath.Dir(dir) != tmp {
		t.Errorf("%s: %v, %v", dir, info, err)
	}
	if again, err := socketPath(run); err != nil || again != path {
		t.Errorf("a second start has its socket at %s, %v", again, err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := socketPath(run); berth.CodeOf(err) != berth.Denied {
		t.Errorf("a link in its place: %v", err)
	}
	if os.Geteuid() != 0 {
		return // only root can make a folder that is somebody else's
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := socketPath(run); berth.CodeOf(err) != berth.Denied {
		t.Errorf("a folder of somebody else's: %v", err)
	}
}
