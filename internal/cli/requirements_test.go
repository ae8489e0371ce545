package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// TestIsPath: what a requirements file names of this machine is known, and a name that happens to
// be that of a folder is not.
func TestIsPath(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"pkg/setup.py", "wheels/x.whl", "y.whl", "idna"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for value, want := range map[string]bool{
		".": true, "./dist/x.whl": true, "/abs/x.whl": true, "~/x": true, ".[all]": true,
		"pkg/": true, "pkg/[all]": true, "wheels/x.whl": true, "y.whl; python_version > '3'": true,
		"": false, "pkg": false, "pkg[all]": false, "idna": false, "wheels/none.whl": false, "none.whl": false,
		"six == 1.17.0 --hash=sha256:a/b": false, "git+git@example.org:a/b.git": false, "x @ https://example.org/x.whl": false,
	} {
		if got := isPath(dir, value, false); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
	if !isPath(dir, "pkg", true) || isPath(dir, "git+https://example.org/pkg", true) {
		t.Error("editable requirements")
	}
}
