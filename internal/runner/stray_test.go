//go:build linux

package runner_test

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthml/berth/internal/runner/cache"
	"github.com/berthml/berth/internal/runner/data/blobtest"
)

// TestStray: files that the command writes beside its code are named, since they are lost; what
// tools make for themselves is not.
func TestStray(t *testing.T) {
	eachWay(t, func(t *testing.T, c *cache.Cache) {
		s := blobtest.New(t)
		s.Set(map[string]string{"code/a.py": "a", "code/lib/b.py": "b"})
		for _, x := range []struct{ command, want string }{
			{"cat a.py", ""},
			{"chmod 755 a.py; mkdir -p __pycache__ .cache wandb node_modules logs lib/deep; touch node_modules/m __pycache__/a .cache/b wandb/c lib/d.pyc outputs/o logs/l .hidden; mkfifo pipe; ln -s a.py link; rm lib/b.py", ""},
			{"echo x >model.pkl", "1 file written outside ./outputs was not kept (model.pkl): write it to ./outputs, or to a named output"},
			{"mkdir -p r; for i in 5 4 3 2 1; do echo x >r/$i; done; exit 3", "5 files written outside ./outputs were not kept (r/1, r/2, r/3, …): write"},
			{"mkdir r; cd r; seq 6000 | xargs touch", "at least "},
			{"rm -r ../wd; ln -s /etc ../wd", ""},
			{`rm a.py; echo >"$(printf 'x\033[1m')"`, `("x\x1b[1m")`},
		} {
			b := newBench(t, x.command)
			b.options.Cache = c
			b.launch.Code, b.launch.CodeVersion = s.At("code"), "version-1"
			b.run()
			if got := b.warnings(); !strings.Contains(got, x.want) || x.want == "" && got != "" {
				t.Errorf("%s: %q, want %q", x.command, got, x.want)
			}
		}
	})
}

// TestStrayAndFullDisk: neither hides the other.
func TestStrayAndFullDisk(t *testing.T) {
	s := blobtest.New(t)
	s.Set(map[string]string{"code/a.py": "a"})
	b := newBench(t, `sleep 0.1; echo x >model.pkl; cat /dev/zero >>"$LOGS/fill"; true`)
	logs := t.TempDir()
	if err := unix.Mount("tmpfs", logs, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("no tmpfs can be mounted here:", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(logs, unix.MNT_DETACH) })
	b.launch.LogFile = filepath.Join(logs, "log")
	b.launch.Env = map[string]string{"LOGS": logs}
	b.launch.Code = s.At("code")
	b.run()
	if got := b.warnings(); !strings.Contains(got, "the disk was full") || !strings.Contains(got, "; 1 file written outside ./outputs was not kept (model.pkl)") {
		t.Error(got)
	}
}

// TestStrayWithoutManifest: where it is not known what the code consists of, times tell.
func TestStrayWithoutManifest(t *testing.T) {
	s := blobtest.New(t)
	s.Set(map[string]string{"code/a.py": "a"})
	b := newBench(t, "sleep 0.1; echo x >model.pkl")
	b.launch.Code = s.At("code")
	b.run()
	if got := b.warnings(); !strings.Contains(got, "(model.pkl)") {
		t.Error(got)
	}
}
