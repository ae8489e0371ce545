//go:build !windows

package socket_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/socket"
)

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "s")
	for range 2 { // the second takes the place of one that was left behind
		l, err := socket.Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		t.Cleanup(func() { l.Close() })
		for p, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
			if info, err := os.Stat(p); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v, %v", p, info.Mode(), err)
			}
		}
	}
}

func TestListenWhereOthersWrite(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o770); err != nil {
		t.Fatal(err)
	}
	if _, err := socket.Listen(filepath.Join(dir, "s")); berth.CodeOf(err) != berth.Denied {
		t.Errorf("in a directory that a group may change: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if err := socket.Private(link); berth.CodeOf(err) != berth.Denied {
		t.Errorf("behind a link: %v", err)
	}
}
