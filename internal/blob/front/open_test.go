package front

import (
	"path/filepath"
	"syscall"
	"testing"
)

// TestOpenNow: a pipe that nobody writes to is opened without waiting, as one that came in the
// place of a file.
func TestOpenNow(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := openNow(pipe)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}
