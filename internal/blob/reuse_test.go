package blob_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
)

// TestReuse: what a user uploaded to one folder gets a name in another without its bytes; what
// others uploaded, what is not there, and what has another hash or size does not.
func TestReuse(t *testing.T) {
	s := open(t)
	ann, bob := blob.WithUser(t.Context(), "ann"), blob.WithUser(t.Context(), "bob")
	var files []blob.Packed
	var tree berth.Tree
	for i := range 300 {
		path, text := fmt.Sprintf("d%d/f%d", i/50, i), fmt.Sprint("text ", i)
		files = append(files, blob.Packed{Name: "codes-1/src/" + path, Data: []byte(text)})
		tree.Files = append(tree.Files, berth.TreeFile{Path: path, Size: int64(len(text)), Mode: 0o600, Hash: fmt.Sprintf("%x", sha256.Sum256([]byte(text)))})
	}
	if err := s.PutMany(ann, "box", files); err != nil {
		t.Fatal(err)
	}
	asked := berth.Tree{Files: slices.Clone(tree.Files)}
	asked.Files[7].Hash = asked.Files[8].Hash
	asked.Files[9].Size++
	asked.Files[290].Path = "new"
	missing, err := s.Reuse(ann, "box", "codes-2/src", "codes-1/src", &asked)
	if want := []string{asked.Files[7].Path, asked.Files[9].Path, "new"}; err != nil || !slices.Equal(missing, want) {
		t.Errorf("missing %q, %v", missing, err)
	}
	if got := read(t, s, "codes-2/src/d2/f100"); got != "text 100" {
		t.Errorf("a file that was reused: %q", got)
	}
	for what, ctx := range map[string]struct {
		who  string
		from string
	}{"another user": {"bob", "codes-1/src"}, "nobody": {"", "codes-1/src"}, "no such folder": {"ann", "codes-7"}} {
		missing, err := s.Reuse(blob.WithUser(t.Context(), ctx.who), "box", "codes-3/"+ctx.who, ctx.from, &tree)
		if err != nil || len(missing) != len(tree.Files) {
			t.Errorf("%s: %d are missing, %v", what, len(missing), err)
		}
	}
	if err := s.PutMany(bob, "box", []blob.Packed{{Name: "LocalUpload/h/x", Data: []byte("bob's")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Reuse(ann, "box", "LocalUpload/h", "codes-1/src", &tree); berth.CodeOf(err) != berth.Conflict {
		t.Errorf("another one's folder is written to: %v", err)
	}
	if _, err := s.Reuse(ann, "box", "a/../b", "codes-1/src", &tree); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("a path out of the folder: %v", err)
	}
	if st, err := s.GC(t.Context(), 0); err != nil || st.Objects != 0 {
		t.Errorf("%+v, %v", st, err)
	}
}
