package berth_test

import (
	"strings"
	"testing"

	"github.com/berthml/berth"
)

func treeText(single bool, files ...berth.TreeFile) []byte {
	t := berth.Tree{Single: single}
	b := t.AppendHead(nil)
	for i := range files {
		b = files[i].AppendFile(b)
	}
	return t.AppendEnd(b, len(files))
}

// TestTreeText: a manifest comes back as it was written.
func TestTreeText(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	files := []berth.TreeFile{
		{Path: "a b\nc.py", Size: 12, Mode: 0o600, Hash: hash},
		{Path: "empty/", Mode: 0o700},
		{Path: "x/" + strings.Repeat("n", 255), Size: 1 << 40, Mode: 0o755, Hash: hash},
	}
	text := treeText(false, files...)
	end := berth.Tree{}
	whole := len(text) - len(end.AppendEnd(nil, len(files)))
	text = end.AppendEnd(berth.AppendSkipped(text[:whole:whole], `x\y`), len(files))
	got, err := berth.ParseTree(text)
	if err == nil && (len(got.Skipped) != 1 || got.Skipped[0] != `x\y`) {
		t.Errorf("skipped %q", got.Skipped)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got.Single || len(got.Files) != len(files) {
		t.Fatalf("%+v", got)
	}
	for i, f := range files {
		if got.Files[i] != f && !(f.Folder() && got.Files[i].Path == f.Path) {
			t.Errorf("%+v, not %+v", got.Files[i], f)
		}
	}
}

// TestTreeThatLies: what is not whole, or names something that is not below the folder, is refused.
func TestTreeThatLies(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	good := berth.TreeFile{Path: "a", Size: 1, Mode: 0o600, Hash: hash}
	with := func(f func(*berth.TreeFile)) []byte {
		x := good
		f(&x)
		return treeText(false, x)
	}
	whole := treeText(false, good, berth.TreeFile{Path: "b", Hash: hash})
	bad := map[string][]byte{
		"cut":          whole[:len(whole)-1],
		"cut earlier":  whole[:len(whole)-20],
		"empty":        nil,
		"another text": []byte("<html>"),
		"twice":        treeText(false, good, good),
		"file and dir": treeText(false, good, berth.TreeFile{Path: "a/"}),
		"two singles":  treeText(true, good, berth.TreeFile{Path: "b", Hash: hash}),
		"single below": treeText(true, berth.TreeFile{Path: "a/b", Hash: hash}),
		"no hash":      with(func(f *berth.TreeFile) { f.Hash = "xyz" }),
		"upper hash":   with(func(f *berth.TreeFile) { f.Hash = strings.ToUpper(hash) }),
		"path in hash": with(func(f *berth.TreeFile) { f.Hash = "../" + hash[3:] }),
		"size":         with(func(f *berth.TreeFile) { f.Size = -1 }),
		"setuid":       with(func(f *berth.TreeFile) { f.Mode = 0o4755 }),
	}
	for _, path := range []string{"", "/", "/etc/passwd", "..", "../x", "a/../../x", "./a", "a//b", "a/.", "a/..", `a\..\b`, "//", strings.Repeat("n", 256)} {
		bad["path "+path] = with(func(f *berth.TreeFile) { f.Path = path })
	}
	for name, text := range bad {
		if got, err := berth.ParseTree(text); berth.CodeOf(err) != berth.Invalid {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestTreeOutOfOrder: names need not be in order, and one that is there twice is found wherever it
// is.
func TestTreeOutOfOrder(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	tree := func(names ...string) []byte {
		var files []berth.TreeFile
		for _, n := range names {
			files = append(files, berth.TreeFile{Path: n, Mode: 0o600, Hash: hash})
		}
		return treeText(false, files...)
	}
	if got, err := berth.ParseTree(tree("b", "a", "c", "B", "a.b", "a-")); err != nil || len(got.Files) != 6 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, names := range [][]string{{"a", "b", "a"}, {"b", "a", "b"}, {"b", "a", "c", "c"}, {"a", "a.b", "a/"}, {"a/", "b", "a"}} {
		if _, err := berth.ParseTree(tree(names...)); berth.CodeOf(err) != berth.Invalid {
			t.Errorf("%q: %v", names, err)
		}
	}
}
