package spec_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/spec"
)

// Files that refer to each other in a circle are an error that says so, not an endless walk.
func TestCycles(t *testing.T) {
	dir := t.TempDir()
	node := func(name, other string) {
		text := "type: pipeline\njobs:\n  a:\n    type: pipeline\n    component: ./" + other + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	node("self.yml", "self.yml")
	node("one.yml", "two.yml")
	node("two.yml", "one.yml")
	for _, name := range []string{"self.yml", "one.yml"} {
		_, err := spec.Load(filepath.Join(dir, name), spec.Options{Kind: "job"})
		if err == nil || !strings.Contains(err.Error(), "refers to itself") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
