package locate

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/storage"
	"github.com/berthml/berth/internal/store"
)

// Datastore is storage elsewhere as a datastore's document has it.
type Datastore struct {
	*storage.Store
	Doc *store.Doc
	// Credentials is what the document says of them; the secrets are sealed beside it.
	Credentials map[string]any
}

// ReadDatastore reads the document of a datastore elsewhere.
func ReadDatastore(d *store.Doc) (Datastore, error) {
	var v struct {
		Properties map[string]any `json:"properties"`
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return Datastore{}, berth.Errorf(berth.Invalid, "datastore %s cannot be read: %w", d.Name, err)
	}
	s, err := storage.Read(v.Properties)
	if err != nil {
		return Datastore{}, berth.Errorf(berth.CodeOf(err), "datastore %s: %w", d.Name, err)
	}
	credentials, _ := v.Properties["credentials"].(map[string]any)
	return Datastore{s, d, credentials}, nil
}

// outside is a path in the storage of a datastore that is not our own.
func outside(d *store.Doc, path string) (Place, error) {
	s, err := ReadDatastore(d)
	if err != nil {
		return Place{}, err
	}
	if s.Type == storage.Folder {
		// A folder of the machines: whoever uses it must be allowed to, as with any other file of
		// theirs.
		return Place{URL: (&url.URL{Scheme: "file", Path: join(strings.TrimRight(s.Path, "/"), path)}).String()}, nil
	}
	return Place{Datastore: d.Name, Name: path}, nil
}

// elsewhere is an address that is not ours: in the storage of a datastore, if there is one for it.
// One with a query brings its own signature.
func elsewhere(tx *store.Tx, ws berth.Workspace, uri string) (Place, error) {
	plain := Place{URL: uri}
	if !storage.Elsewhere(uri) && (strings.Contains(uri, "?") || !strings.HasPrefix(uri, "http")) {
		return plain, nil
	}
	docs, err := tx.All(store.Query{Workspace: ws.Key(), Kind: "datastores"})
	if err != nil {
		return Place{}, err
	}
	var found Place
	var names []string
	for _, d := range docs {
		s, err := ReadDatastore(d)
		if err != nil || s.Type == storage.Folder {
			continue // our own, or one that nothing can be read from
		}
		if path, ok := s.Find(uri); ok {
			found = Place{Datastore: d.Name, Name: path}
			names = append(names, d.Name)
		}
	}
	switch {
	case len(names) == 0:
		return plain, nil
	case len(names) > 1:
		return Place{}, berth.Errorf(berth.Invalid, "%s is in the datastores %s: name one of them, azureml://datastores/%s/paths/%s",
			uri, strings.Join(names, ", "), names[0], found.Name)
	}
	if err := cleanPath(found.Name); err != nil {
		return Place{}, berth.Errorf(berth.Invalid, "%s: %w", uri, err)
	}
	return found, nil
}

// Grant is the right of a task to have requests to a place signed.
type Grant struct {
	Datastore string `json:"datastore"`
	Path      string `json:"path,omitempty"`
	Write     bool   `json:"write,omitempty"`
	User      string `json:"user,omitempty"` // on whose behalf
}
