package spec_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth/internal/spec"
)

func write(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func names(f *spec.Folder) []string {
	var out []string
	for _, file := range f.Files {
		out = append(out, file.Name)
	}
	return out
}

// The hash is the one the reference client makes for the same files: the values were computed with
// its own function (get_content_hash, version 202208).
func TestSnapshotHash(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"b.txt": "bee", "A/c.txt": "", "a.py": "print(1)\n"})
	f, err := spec.Upload{Path: root}.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a.py", "A/c.txt", "b.txt"}, names(f)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if want := "675fd91479d0b581222812f1c5c8ec5f66464584c83ea92fef4f51f430af6eda"; f.Hash != want {
		t.Errorf("hash of the folder is %s, want %s", f.Hash, want)
	}
	one, err := spec.Upload{Path: filepath.Join(root, "a.py")}.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if want := "cfaec1841e47878420b81d3cec4eab17e57bae6e475433ea93c1edbe4b6d0f80"; one.Hash != want {
		t.Errorf("hash of the file is %s, want %s", one.Hash, want)
	}
}

func TestSnapshotIgnores(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{
		".amlignore": "*.log\nbuild/\n!build/keep.txt\n/top.txt\ndoc/**/x\n",
		".gitignore": "*.py\n",
		"a.py":       "", "a.log": "", "sub/b.log": "", "build/x": "", "build/keep.txt": "",
		"top.txt": "", "sub/top.txt": "", "doc/a/b/x": "", "doc/y": "",
	})
	f, err := spec.Upload{Path: root}.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{".amlignore", ".gitignore", "a.py", "build/keep.txt", "doc/y", "sub/top.txt"}
	if diff := cmp.Diff(want, names(f)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestSnapshotLinks(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	write(t, outside, map[string]string{"data/far.txt": "far"})
	write(t, root, map[string]string{"near.txt": "near"})
	link := func(to, name string) {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Skip(err)
		}
	}
	want := func(u spec.Upload, want ...string) {
		t.Helper()
		u.Path = root
		f, err := u.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, names(f)); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
	}
	link(filepath.Join(root, "near.txt"), "file.txt")
	link(filepath.Join(outside, "data"), "folder")
	link("folder/far.txt", "through.txt")
	want(spec.Upload{Links: true}, "file.txt", "folder/far.txt", "near.txt", "through.txt")
	want(spec.Upload{Ignore: []string{"folder", "through.txt", "!near.txt"}}, "file.txt", "near.txt")

	_, err := spec.Upload{Path: root}.Snapshot()
	for _, name := range []string{"folder", "through.txt"} {
		if err == nil || !strings.Contains(err.Error(), filepath.Join(root, name)+" is a link to "+outside) {
			t.Errorf("a link out of the folder, %s, gives %v", name, err)
		}
	}
	if err == nil || strings.Contains(err.Error(), "file.txt is a link") {
		t.Errorf("a link within the folder gives %v", err)
	}
	for _, name := range []string{"folder", "through.txt"} {
		if err := os.Remove(filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}

	// The folder itself may be named by a link.
	alias := filepath.Join(outside, "alias")
	if err := os.Symlink(root, alias); err != nil {
		t.Fatal(err)
	}
	if f, err := (spec.Upload{Path: alias}).Snapshot(); err != nil || len(f.Files) != 2 {
		t.Errorf("a folder named by a link gives %v, %v", f, err)
	}
	link("nowhere", "lost")
	if _, err := (spec.Upload{Path: root}).Snapshot(); err == nil || !strings.Contains(err.Error(), "lost is a link to nowhere, which does not exist; remove the link or exclude it with .amlignore") {
		t.Errorf("a link to nothing gives %v", err)
	}
	if err := os.Remove(filepath.Join(root, "lost")); err != nil {
		t.Fatal(err)
	}
	link(root, "self")
	if _, err := (spec.Upload{Path: root}).Snapshot(); err == nil || !strings.Contains(err.Error(), "link to a folder that contains it") {
		t.Errorf("a link to the folder itself gives %v", err)
	}
}

func TestSnapshotIncludes(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"code/a.py": "a", "lib/x.py": "x", "lib/__pycache__/x.pyc": "", "LICENSE": "l"})
	u := spec.Upload{Path: filepath.Join(root, "code"), Includes: []string{filepath.Join(root, "lib"), filepath.Join(root, "LICENSE")}, Ignore: []string{"__pycache__"}}
	f, err := u.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a.py", "lib/x.py", "LICENSE"}, names(f)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if _, err := (spec.Upload{Path: root, Includes: []string{filepath.Join(root, "nothing")}}).Snapshot(); err == nil {
		t.Error("an include that does not exist is taken")
	}
	if _, err := (spec.Upload{Path: filepath.Join(root, "nothing")}).Snapshot(); err == nil {
		t.Error("a folder that does not exist is taken")
	}
}

// TestIgnoreLikeGit compares the matcher with git check-ignore. Patterns that take back (!) are
// left out: there the reference client differs from Git on purpose.
func TestIgnoreLikeGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not here: ", err)
	}
	root := t.TempDir()
	if out, err := exec.Command("git", "init", "-q", root).CombinedOutput(); err != nil {
		t.Skipf("git init: %v: %s", err, out)
	}
	patterns := []string{
		"*.log", "build/", "/top", "a/b", "a/**/c", "**/deep", "x?z", "[a-c]1", "[!a]2", "sp ace", "tail \\ ", "#no",
		"\\#yes", "*.p[yc]", "doc/*.txt", "doc/", "/a/", "**", "a/**", "*", "foo*bar", "\\*star", "end\\", "[z", "a//b", "/", "**/*.o", "dir/**/",
	}
	paths := []string{
		"a.log", "sub/a.log", "build/x", "build", "top", "sub/top", "a/b", "a/b/c", "a/x/c", "a/c", "deep", "q/deep", "q/deep/r",
		"xyz", "x/z", "a1", "d1", "a2", "b2", "sp ace", "tail  ", "#yes", "#no", "m.py", "m.pyc", "doc/t.txt", "doc/u/t.txt", "foobar", "foo-bar",
		"*star", "star", "end", "[z", "dir/q/w", "dir/w", "k.o", "k/l.o",
	}
	check := func(t interface{ Fatalf(string, ...any) }, lines []string) {
		text := strings.Join(lines, "\n") + "\n"
		if err := os.WriteFile(filepath.Join(root, ".gitignore"), []byte(text), 0o644); err != nil {
			t.Fatalf("%v", err)
		}
		cmd := exec.Command("git", "-C", root, "check-ignore", "--no-index", "-z", "--stdin")
		cmd.Stdin = strings.NewReader(strings.Join(paths, "\x00") + "\x00")
		out, _ := cmd.Output()
		ignored := map[string]bool{}
		for _, p := range strings.Split(string(out), "\x00") {
			ignored[p] = true
		}
		g := spec.ParseIgnore(text)
		for _, p := range paths {
			if got := g.Match(p); got != ignored[p] {
				t.Fatalf("patterns %q: %q ignored is %v, Git says %v", lines, p, got, ignored[p])
			}
		}
	}
	for _, p := range patterns {
		t.Run(fmt.Sprintf("%q", p), func(t *testing.T) { check(t, []string{p}) })
	}
	rapid.Check(t, func(rt *rapid.T) {
		check(rt, rapid.SliceOfN(rapid.SampledFrom(patterns), 1, 4).Draw(rt, "patterns"))
	})
}
