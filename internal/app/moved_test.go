//go:build unix

package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/config"
)

// TestSettleIn moves a home again and again. As long as a task is in it every path it had leads to
// where it is; what is in the way and is no home is moved aside, and another home is not touched.
func TestSettleIn(t *testing.T) {
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	task := filepath.Join("host", "tasks", "j.1")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	settle := func(name string) error {
		a := &App{cfg: config.Default(at(name)), log: slog.New(slog.DiscardHandler)}
		return a.settleIn(filepath.Join(at(name), "run"))
	}
	must(os.MkdirAll(filepath.Join(at("a"), task), 0o700))
	must(os.MkdirAll(filepath.Join(at("a"), "run"), 0o700))
	must(settle("a"))
	must(os.Rename(at("a"), at("b")))
	must(settle("b"))
	must(os.Rename(at("b"), at("c")))
	must(os.MkdirAll(filepath.Join(at("b"), "host"), 0o700)) // by one who has not noticed yet
	must(settle("c"))
	for _, old := range []string{"a", "b"} {
		if !leadsTo(filepath.Join(at(old), task), filepath.Join(at("c"), task)) {
			t.Errorf("%s does not lead to the home", old)
		}
	}
	if stray, err := filepath.Glob(at("b.stray-*")); len(stray) != 1 || err != nil {
		t.Errorf("moved aside: %v, %v", stray, err)
	}
	must(os.Rename(at("c"), at("d")))
	must(os.MkdirAll(filepath.Join(at("c"), "run"), 0o700)) // another home
	if err := settle("d"); berth.CodeOf(err) != berth.Conflict {
		t.Errorf("with another home at the old place: %v", err)
	}
	must(os.RemoveAll(at("c")))
	must(settle("d"))
	must(os.Remove(filepath.Join(at("d"), task)))
	must(settle("d"))
	for _, old := range []string{"a", "b", "c"} {
		if _, err := os.Lstat(at(old)); err == nil {
			t.Errorf("%s is there although nothing needs it", old)
		}
	}
}
