package front_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob/front"
)

// TestTree asks for manifests of folders and files.
func TestTree(t *testing.T) {
	s := serve(t)
	for name, text := range map[string]string{"dir/a": "one", "dir/b/c": "three", "file": "f"} {
		if res, body := s.do(http.MethodPut, "box/"+name, text, "x-ms-blob-type", "BlockBlob"); res.StatusCode != http.StatusCreated {
			t.Fatal(res.Status, body)
		}
	}
	ask := func(target string, single bool, want ...string) {
		t.Helper()
		res, body := s.do(http.MethodGet, "box/"+target, "")
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", target, res.Status, body)
			return
		}
		tree, err := berth.ParseTree([]byte(body))
		if err != nil || tree.Single != single || len(tree.Files) != len(want) {
			t.Errorf("%s: %+v, %v", target, tree, err)
			return
		}
		for i, f := range tree.Files {
			if f.Path != want[i] {
				t.Errorf("%s: %s, not %s", target, f.Path, want[i])
			}
		}
	}
	ask("dir?comp=tree", false, "a", "b/c")
	ask("dir/?comp=tree", false, "a", "b/c")
	ask("file?comp=tree", true, "file")
	ask("dir/a?comp=tree&type=file", true, "a")
	for _, target := range []string{"dir?comp=tree&type=file", "nothing?comp=tree"} {
		if res, body := s.do(http.MethodGet, "box/"+target, ""); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s %s", target, res.Status, body)
		}
	}
	for _, name := range []string{"dir/x%5Cy", "dir//z", "dir/a/sub", "dir/" + strings.Repeat("n", 300)} {
		if res, body := s.do(http.MethodPut, "box/"+name, "odd", "x-ms-blob-type", "BlockBlob"); res.StatusCode != http.StatusCreated {
			t.Fatal(name, res.Status, body)
		}
	}
	ask("dir?comp=tree", false, "a", "b/c") // names that cannot be files are left out, and told
	_, body := s.do(http.MethodGet, "box/dir?comp=tree", "")
	if tree, err := berth.ParseTree([]byte(body)); err != nil || len(tree.Skipped) != 4 {
		t.Errorf("skipped: %q, %v", tree.Skipped, err)
	}
	if _, err := s.store.PutLive(t.Context(), "box", "dir/log", "logs/x"); err != nil {
		t.Fatal(err)
	}
	if res, body := s.do(http.MethodGet, "box/dir?comp=tree", ""); res.StatusCode == http.StatusOK {
		if _, err := berth.ParseTree([]byte(body)); err == nil {
			t.Error("a folder with a growing file has a manifest")
		}
	}
	for _, g := range []front.Grant{
		{Container: "box", Prefix: "dir/b", Perm: "rl", Expiry: all.Expiry},
		{Container: "box", Prefix: "dir", Perm: "r", Expiry: all.Expiry},
		{Container: "box", Prefix: "dir", Perm: "l", Expiry: all.Expiry},
	} {
		if res, _ := s.raw(http.MethodGet, s.server.URL+"/st.blob.berth/box/dir?comp=tree&"+s.signer.Sign(g), ""); res.StatusCode != http.StatusForbidden {
			t.Errorf("%+v: %s", g, res.Status)
		}
	}
}
