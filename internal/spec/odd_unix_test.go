//go:build unix

package spec_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/spec"
)

// TestPipesAndSocketsAreTold: what cannot be uploaded is neither opened, which would wait for ever,
// nor left out in silence.
func TestPipesAndSocketsAreTold(t *testing.T) {
	root, err := os.MkdirTemp("", "odd") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	write(t, root, map[string]string{"a.py": "x", "sub/b.py": "y"})
	if err := syscall.Mkfifo(filepath.Join(root, "sub", "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(root, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Symlink("sub/pipe", filepath.Join(root, "topipe")); err != nil {
		t.Fatal(err)
	}
	f, err := spec.Upload{Path: root}.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a.py", "sub/b.py"}, names(f)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	slices.Sort(f.Skipped)
	if diff := cmp.Diff([]string{"socket is a socket", "sub/pipe is a named pipe", "topipe is a named pipe"}, f.Skipped); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
	if _, err := (spec.Upload{Path: filepath.Join(root, "sub", "pipe")}).Snapshot(); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("a pipe by itself: %v", err)
	}
}

// TestUnreadableIsAnError: a file or folder that may not be read is not simply left out.
func TestUnreadableIsAnError(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything")
	}
	for _, name := range []string{"a.py", "sub"} {
		root := t.TempDir()
		write(t, root, map[string]string{"a.py": "x", "sub/b.py": "y"})
		if err := os.Chmod(filepath.Join(root, name), 0); err != nil {
			t.Fatal(err)
		}
		_, err := spec.Upload{Path: root}.Snapshot()
		if berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.Chmod(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}
