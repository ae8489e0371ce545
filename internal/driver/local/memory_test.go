package local

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLimited: the memory of a container is that of its limit, where it has one.
func TestLimited(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	limit, none, unlimited := file("limit", "1000\n"), filepath.Join(dir, "none"), file("unlimited", "9223372036854771712\n")
	for want, files := range map[int64][]string{
		1000: {none, limit},
		5000: {none, unlimited, file("max", "max\n"), file("zero", "0"), file("odd", "1k")},
	} {
		if got := limited(5000, files); got != want {
			t.Errorf("%v: %d, want %d", files, got, want)
		}
	}
	if TotalMemory() <= 0 {
		t.Error("this machine has no memory")
	}
}
