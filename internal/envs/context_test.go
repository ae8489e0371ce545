package envs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth"
)

// TestContextKeepsToItsLimit: a build context in a folder that users may name is not led out of it
// by links.
func TestContextKeepsToItsLimit(t *testing.T) {
	limit, outside := t.TempDir(), t.TempDir()
	good := filepath.Join(limit, "good")
	err := errors.Join(os.Mkdir(good, 0o700), os.WriteFile(filepath.Join(good, "Dockerfile"), []byte("FROM a"), 0o600),
		os.WriteFile(filepath.Join(outside, "Dockerfile"), []byte("secret"), 0o600), os.Symlink(outside, filepath.Join(limit, "bad")),
		os.Symlink(filepath.Join(outside, "Dockerfile"), filepath.Join(good, "link")))
	if err != nil {
		t.Fatal(err)
	}
	for path, ok := range map[string]bool{good: true, limit + "/bad": false, outside: false, limit + "/../" + filepath.Base(outside): false} {
		root, err := openContext(berth.LaunchEnv{Build: "file://" + path, Below: limit})
		if (err == nil) != ok {
			t.Errorf("%s: %v", path, err)
		}
		if err != nil {
			continue
		}
		var b bytes.Buffer
		if err := (buildFolder{root: root, dockerfile: "Dockerfile"}).writeTar(&b); err != nil {
			t.Error(err)
		}
		if text := b.String(); !strings.Contains(text, "FROM a") || strings.Contains(text, "secret") {
			t.Errorf("%s: %q", path, text)
		}
		root.Close()
	}
}
