package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/cli"
)

// TestProgressInNotebook: in the output of a notebook's cell, where "\r" begins the line again and
// escape sequences are text, the line of progress has none and leaves nothing behind.
func TestProgressInNotebook(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "screen"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cli.Progress(f, "environment: installing 103 packages", "waiting")
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	var line []rune
	for piece := range strings.SplitSeq(string(b), "\r") {
		over := []rune(piece)
		line = append(over, line[min(len(over), len(line)):]...)
		if shown := string(line); strings.Contains(shown, "\x1b") || strings.Contains(piece, "waiting") && strings.Contains(shown, "packages") {
			t.Errorf("it shows %q", shown)
		}
	}
	if left := strings.TrimSpace(string(line)); left != "" {
		t.Errorf("left behind: %q", left)
	}
}
