package api

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/storage"
	"github.com/berthml/berth/internal/store"
)

// datastoreOwn marks the datastores that are our own storage.
type datastoreOwn struct {
	Container string `json:"container,omitempty"`
}

// maxDatastores is how many a workspace may have, and userDatastores how many of them one user who
// is not an administrator.
const (
	maxDatastores  = 1000
	userDatastores = 200
)

// checkDatastoreCount refuses one more than a workspace, or a user, may have.
func checkDatastoreCount(c *call, tx *store.Tx, name string) error {
	docs, err := tx.List(store.Query{Workspace: c.ws.Key(), Kind: "datastores", Limit: maxDatastores, NoBody: true})
	if err != nil || slices.ContainsFunc(docs, func(d *store.Doc) bool { return strings.EqualFold(d.Name, name) }) {
		return err
	}
	own := 0
	for _, d := range docs {
		if d.CreatedBy == c.who.User {
			own++
		}
	}
	if own >= userDatastores && c.who.Role != auth.Admin {
		return berth.Errorf(berth.Limit, "a user has %d datastores in a workspace at most: delete one that is not needed", userDatastores)
	}
	if len(docs) < maxDatastores {
		return nil
	}
	return berth.Errorf(berth.Limit, "a workspace has %d datastores at most: delete one that is not needed", maxDatastores)
}

// markDatastore notes whether only administrators made and changed a datastore. One that was made
// before there was such a note gets it when the administrator who made it changes it.
func markDatastore(c *call, d *store.Doc, had json.RawMessage, created bool) error {
	before, err := store.State[locate.DatastoreMark](&store.Doc{Kind: d.Kind, Name: d.Name, Own: had})
	if err != nil || c.who.Role != auth.Admin || !created && !before.Admin && d.CreatedBy != c.who.User {
		return err
	}
	own, err := store.State[map[string]any](d)
	if err != nil {
		return err
	}
	if own == nil {
		own = map[string]any{}
	}
	own["admin"] = true
	return store.SetState(d, own)
}

// ownContainer is the container of a datastore that is our own.
func (c *call) ownContainer(d *store.Doc) (string, bool) {
	own, err := store.State[datastoreOwn](d)
	return own.Container, err == nil && own.Container != ""
}

func ownDatastore(name string) bool {
	return strings.EqualFold(name, defaultDatastore) || strings.EqualFold(name, artifactDatastore)
}

func deleteDatastore(c *call, r *resource, name string) error {
	if ownDatastore(name) {
		return berth.Errorf(berth.Conflict, "datastore %s is the workspace's own and cannot be deleted", name)
	}
	return c.s.docs.remove(c, r, name, "")
}

func checkDatastore(c *call, tx *store.Tx, name, _ string, p map[string]any) error {
	if ownDatastore(name) {
		return berth.Errorf(berth.Conflict, "datastore %s is the workspace's own and cannot be changed", name)
	}
	if err := checkDatastoreCount(c, tx, name); err != nil {
		return err
	}
	switch kind := text(p, "datastoreType"); kind {
	case storage.AzureBlob, storage.AzureLake, storage.AzureFile, "AzureDataLakeGen1", "OneLake", "Hdfs":
		return nil // Azure takes them as they are, and says at their first use what is wrong
	case storage.S3, storage.Google, storage.HTTP, storage.Folder:
		s, err := storage.Read(p)
		if err == nil && kind == storage.Folder && c.who.Role != auth.Admin {
			_, err = c.s.Allow.File((&url.URL{Scheme: "file", Path: s.Path}).String())
		}
		return err
	default:
		return berth.Errorf(berth.Invalid, "properties.datastoreType %q is not AzureBlob, AzureFile, AzureDataLakeGen1, AzureDataLakeGen2, OneLake, S3, GoogleStorage, Http or Folder", kind)
	}
}
