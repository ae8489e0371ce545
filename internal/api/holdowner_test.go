package api_test

import (
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/store"
)

// farWorkspace creates a second workspace and returns its path.
func (x *house) farWorkspace() string {
	x.t.Helper()
	far := "/subscriptions/sub/resourceGroups/Group/providers/Microsoft.MachineLearningServices/workspaces/far"
	if a := x.do("PUT", far, `{"location":"there"}`); a.status >= 300 {
		x.t.Fatalf("%d %s", a.status, a.raw)
	}
	return far
}

// files puts a file into the first workspace, and returns its container and its URL.
func (x *house) files(name string) (box, url string) {
	x.t.Helper()
	box = x.do("GET", x.ws+"/datastores/workspaceblobstore", nil).want(200).at("properties.containerName").(string)
	if err := x.write(box, name, "1"); err != nil {
		x.t.Fatal(err)
	}
	return box, "https://127.0.0.1:8443/st.blob.berth/" + box + "/" + name
}

func (x *house) write(box, name, text string) error {
	_, err := x.blobs.Put(blob.WithUser(x.t.Context(), "root"), box, name, strings.NewReader(text), blob.PutOptions{})
	return err
}

// holds counts the documents that keep files from being written to.
func (x *house) holds() (n int) {
	x.t.Helper()
	err := x.db.View(x.t.Context(), func(tx *store.Tx) error {
		docs, err := tx.All(store.Query{Kind: "blobholds"})
		n = len(docs)
		return err
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return n
}

// TestHoldsOfTwoWorkspaces: versions of the same name in two workspaces each hold the files they
// share, and neither ends with the other.
func TestHoldsOfTwoWorkspaces(t *testing.T) {
	for _, first := range []string{"lab", "far"} {
		t.Run("deleted in "+first, func(t *testing.T) {
			x := open(t)
			far := x.farWorkspace()
			box, url := x.files("set/a.csv")
			data := props("dataType", "uri_file", "dataUri", url)
			at := map[string]string{"lab": x.ws + "/data/d/versions/1", "far": far + "/data/d/versions/1"}
			for _, path := range at {
				x.do("PUT", path, data).want(201)
			}
			x.do("DELETE", at[first], nil).want(200)
			if err := x.write(box, "set/a.csv", "2"); berth.CodeOf(err) != berth.Conflict {
				t.Errorf("the file of a version that is left was overwritten: %v", err)
			}
			delete(at, first)
			for _, path := range at {
				x.do("DELETE", path, nil).want(200)
			}
			if err := x.write(box, "set/a.csv", "2"); err != nil {
				t.Errorf("no version is left, and its file is held: %v", err)
			}
		})
	}
}

// TestHoldsEndWithTheirWorkspace: with a workspace go the holds of its versions on files of other
// workspaces, and those on its own.
func TestHoldsEndWithTheirWorkspace(t *testing.T) {
	x := open(t)
	before := x.holds()
	far := x.farWorkspace()
	box, url := x.files("set/a.csv")
	x.do("PUT", far+"/data/d/versions/1", props("dataType", "uri_file", "dataUri", url)).want(201)
	own := x.do("GET", far+"/datastores/workspaceblobstore", nil).want(200).at("properties.containerName").(string)
	for _, name := range []string{"LocalUpload/0a1b/b.csv", "kept/c.csv"} {
		if err := x.write(own, name, "1"); err != nil {
			t.Fatal(err)
		}
	}
	x.do("PUT", far+"/data/e/versions/1", props("dataType", "uri_file", "dataUri", "azureml://datastores/workspaceblobstore/paths/kept/c.csv")).want(201)
	if n := x.holds() - before; n != 3 {
		t.Fatalf("%d holds, want 3", n)
	}
	x.do("DELETE", far, nil).want(200)
	if err := x.write(box, "set/a.csv", "2"); err != nil {
		t.Errorf("the workspace is gone, and its version holds a file: %v", err)
	}
	if n := x.holds() - before; n != 0 {
		t.Errorf("%d holds are left of a workspace that is gone", n)
	}
}
