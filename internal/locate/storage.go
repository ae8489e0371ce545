package locate

import (
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Storage is where a workspace keeps its bytes. It is the part of the workspace's document that
// Berth owns.
type Storage struct {
	ID        string `json:"workspaceId"`
	Blobs     string `json:"blobContainer"`     // container of the default datastore
	Artifacts string `json:"artifactContainer"` // container of logs and default outputs
}

// NewStorage names the storage of a new workspace.
func NewStorage() Storage {
	id := berth.NewGUID()
	return Storage{ID: id, Blobs: "azureml-blobstore-" + id, Artifacts: "azureml-" + id}
}

// WorkspaceOf is the workspace a document is about, in the casing it was made with. The id is kept
// in Parent.
func WorkspaceOf(d *store.Doc) (berth.Workspace, error) {
	p := strings.Split(strings.Trim(d.Parent, "/"), "/")
	if len(p) < 8 {
		return berth.Workspace{}, berth.Errorf(berth.Internal, "workspace %s has no id", d.Name)
	}
	return berth.Workspace{Subscription: p[1], Group: p[3], Name: p[7]}, nil
}

// StorageOf is the storage of the workspace with this key.
func StorageOf(tx *store.Tx, workspaceKey string) (Storage, error) {
	d, err := tx.Get("", "workspaces", workspaceKey, "")
	if err != nil {
		return Storage{}, err
	}
	return store.State[Storage](d)
}
