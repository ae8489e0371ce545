package data_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/data"
	"github.com/berthml/berth/internal/runner/data/blobtest"
)

// TestContents: small files come in one stream, which is asked for again when it was cut; large
// ones and those of servers without packs come by themselves.
func TestContents(t *testing.T) {
	for _, tt := range []struct {
		name     string
		old, cut bool
		posts    int64
	}{{"packs", false, false, 1}, {"cut once", false, true, 2}, {"an older server", true, false, 1}} {
		t.Run(tt.name, func(t *testing.T) {
			s := blobtest.New(t)
			s.NoPacks = tt.old
			blobs, want := map[string]string{}, map[string]string{}
			for i := range 300 {
				name := fmt.Sprintf("d%d/f %d.py", i/50, i)
				want[name] = strings.Repeat("x", i)
			}
			want["large"] = strings.Repeat("large", 100_000)
			for n, text := range want {
				blobs["code/"+n] = text
			}
			s.Set(blobs)
			var posts atomic.Int64
			s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost {
					return false
				}
				if posts.Add(1) > 1 || !tt.cut {
					return false
				}
				_, _ = w.Write(berth.AppendPackFile(nil, "d0/f 0.py", 0))
				return true
			}
			c, err := data.New(data.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.Shrink(1<<20, 1<<20, time.Millisecond)
			text, err := c.Manifest(t.Context(), s.At("code"), false)
			if err != nil {
				t.Fatal(err)
			}
			tree, err := berth.ParseTree(text)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			all := make([]int, len(tree.Files))
			for i := range all {
				all[i] = i
			}
			path := func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) }
			if err := c.Contents(t.Context(), s.At("code"), tree, all, path); err != nil {
				t.Fatal(err)
			}
			for i, f := range tree.Files {
				b, err := os.ReadFile(path(i))
				if err != nil || string(b) != want[f.Path] || fmt.Sprintf("%x", sha256.Sum256(b)) != f.Hash {
					t.Errorf("%s: %d bytes, %v", f.Path, len(b), err)
				}
			}
			if posts.Load() != tt.posts {
				t.Errorf("%d packs were asked for", posts.Load())
			}
		})
	}
}
