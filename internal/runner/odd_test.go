//go:build linux

package runner_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/data/blobtest"
)

// TestOddOutputs: what the command put in the place of a folder is not followed, not kept and not
// deleted, and fails nothing.
func TestOddOutputs(t *testing.T) {
	for name, command := range map[string]string{
		"link to a folder": `rm -r outputs; ln -s "$VICTIM" outputs`,
		"link to a file":   `rm -r outputs; ln -s "$VICTIM/file" outputs`,
		"a file":           `rm -r outputs; echo x >outputs`,
		"logs":             `ln -s "$VICTIM" logs`,
		"a named output":   `rm -r ${{outputs.model}}; ln -s "$VICTIM" ${{outputs.model}}`,
		"what is kept":     `if [ -L outputs ]; then k=$(readlink outputs); rm -r "$k"; ln -s "$VICTIM" "$k"; fi; ln -s "$VICTIM" logs`,
	} {
		t.Run(name, func(t *testing.T) {
			victim := t.TempDir()
			if err := os.WriteFile(filepath.Join(victim, "file"), []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			s := blobtest.New(t)
			b := newBench(t, command)
			b.launch.Artifacts = s.At("a")
			b.launch.Env = map[string]string{"VICTIM": victim}
			b.launch.Outputs = map[string]berth.LaunchOutput{"model": {Type: "uri_folder", Mode: "ReadWriteMount", URL: s.At("model")}}
			if name == "what is kept" {
				b.launch.Keep = filepath.Join(t.TempDir(), "keep")
			}
			if exit := b.run(); !exit.OK() {
				t.Errorf("exit %+v", exit)
			}
			if all := s.All(""); len(all) != 0 {
				t.Errorf("kept %v", all)
			}
			if w := b.warnings(); !strings.Contains(w, "is no longer a folder") {
				t.Errorf("warnings %q", w)
			}
			if text, err := os.ReadFile(filepath.Join(victim, "file")); string(text) != "precious" {
				t.Error(err)
			}
		})
	}
}
