package client_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// TestOnlyChangedFilesAreSent: what the server has of an earlier upload is not sent again; a server
// that knows no such request gets everything.
func TestOnlyChangedFilesAreSent(t *testing.T) {
	for _, older := range []bool{false, true} {
		b := &blobs{}
		h := b.handlers()
		var asked []string
		put := h["PUT /st.blob.berth/"]
		h["PUT /st.blob.berth/"] = func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("comp") != "reuse" {
				put(w, r)
				return
			}
			text, err := io.ReadAll(r.Body)
			tree, terr := berth.ParseTree(text)
			if err != nil || terr != nil {
				t.Error(err, terr)
				return
			}
			if older {
				w.Header().Set("x-ms-error-code", "UnsupportedOperation")
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			for _, f := range tree.Files {
				asked = append(asked, r.Header.Get("X-Berth-From")+" "+f.Path)
				if f.Path != "same.py" {
					io.WriteString(w, f.Path+"\x00")
				}
			}
		}
		c := open(t, h)
		var begun []string
		var most atomic.Int64 // calls are concurrent, and may come out of order
		u := &client.Upload{
			Folder: "data", Hash: "h2", Files: []client.File{file(t, "same.py", []byte("same")), file(t, "changed.py", []byte("changed")), file(t, "odd", []byte("unknown"))},
			Before: []string{"https://elsewhere:1/st.blob.berth/c/LocalUpload/h1/data", "https://elsewhere:1/st.blob.berth/c/LocalUpload/h0/data"},
			Begun:  func(at string) { begun = append(begun, at) },
			Hashes: func(files []client.File) { files[0].Hash, files[1].Hash = sha("same"), sha("changed") },
			Progress: func(n, total int64) {
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				if total != 18 {
					t.Errorf("total %d", total)
				}
			},
		}
		if _, err := c.Data(t.Context(), "workspaceblobstore", u); err != nil {
			t.Fatal(err)
		}
		var got []string
		for name := range b.files {
			got = append(got, strings.TrimPrefix(name, "/st.blob.berth/c/LocalUpload/h2/data/"))
		}
		slices.Sort(got)
		want := []string{"changed.py", "odd"}
		wantAsked := []string{u.Before[0] + " same.py", u.Before[0] + " changed.py", u.Before[1] + " changed.py"}
		if older {
			want, wantAsked = []string{"changed.py", "odd", "same.py"}, nil
		}
		if !slices.Equal(got, want) || !slices.Equal(asked, wantAsked) || most.Load() != 18 {
			t.Errorf("older %v: sent %q, asked for %q, progress %d", older, got, asked, most.Load())
		}
		if !slices.Equal(begun, []string{"https://elsewhere:1/st.blob.berth/c/LocalUpload/h2/data"}) {
			t.Errorf("begun %q", begun)
		}
	}
}
