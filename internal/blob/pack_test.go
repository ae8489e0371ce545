package blob_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
)

// TestPutMany: many files are there under their names, and follow the rules that one file follows.
func TestPutMany(t *testing.T) {
	s := open(t)
	ann, bob := blob.WithUser(t.Context(), "ann"), blob.WithUser(t.Context(), "bob")
	var files []blob.Packed
	for i := range 300 {
		files = append(files, blob.Packed{Name: fmt.Sprintf("LocalUpload/h/%d/f%d", i/50, i), Data: []byte(strings.Repeat("x", i%40))}) // some are the same
	}
	for range 2 { // the second time they are there already
		if err := s.PutMany(ann, "box", files); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range files {
		if got := read(t, s, f.Name); got != string(f.Data) {
			t.Errorf("%s: %q", f.Name, got)
		}
	}
	other := []blob.Packed{{Name: "LocalUpload/h/0/f0", Data: []byte("bob's")}}
	if err := s.PutMany(bob, "box", other); berth.CodeOf(err) != berth.Conflict {
		t.Errorf("another one's folder is written to: %v", err)
	}
	for what, f := range map[string]blob.Packed{
		"a path out of the folder": {Name: "a/../b"}, "no name": {}, "a large file": {Name: "a", Data: make([]byte, blob.MaxPacked+1)},
	} {
		if err := s.PutMany(ann, "box", []blob.Packed{f}); berth.CodeOf(err) != berth.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	st, err := s.GC(t.Context(), 0)
	if err != nil || st.Objects != 1 || st.Temps != 0 { // what was bob's
		t.Errorf("%+v, %v", st, err)
	}
}

// TestChunk: a transaction gives no more names than others can wait for, and fewer deep ones.
func TestChunk(t *testing.T) {
	flat, deep := make([]string, 4096), make([]string, 4096)
	for i := range flat {
		flat[i] = fmt.Sprintf("up/src/%d", i)
		deep[i] = strings.Repeat("d/", 250) + fmt.Sprint(i)
	}
	for _, tt := range []struct {
		names []string
		want  int
	}{{flat, 128}, {flat[:5], 5}, {deep, 4}, {deep[:1], 1}, {append(slices.Clone(flat[:10]), deep...), 13}} {
		if got := blob.Chunk(tt.names); got != tt.want {
			t.Errorf("of %d names, the first %.20s, %d are given at once, want %d", len(tt.names), tt.names[0], got, tt.want)
		}
	}
}
