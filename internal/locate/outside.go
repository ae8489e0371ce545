package locate

import (
	"encoding/json"
	"net/url"
	"slices"
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
	admin       bool
}

// DatastoreMark is kept beside a datastore, with what else is.
type DatastoreMark struct {
	// Admin says that only administrators made and changed it: addresses of everybody are looked
	// for in it.
	Admin bool `json:"admin,omitempty"`
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
	mark, err := store.State[DatastoreMark](d)
	if err != nil {
		return Datastore{}, err
	}
	credentials, _ := v.Properties["credentials"].(map[string]any)
	return Datastore{s, d, credentials, mark.Admin}, nil
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

// elsewhere is an address that is not ours: in the storage of a datastore, if user has one for it,
// or else an administrator. What others made is not used unless it is named: they would decide
// where the data of somebody who does not know of it comes from. An address with a query brings its
// own signature.
func elsewhere(tx *store.Tx, ws berth.Workspace, user, uri string) (Place, error) {
	plain := Place{URL: uri, User: user}
	if !storage.Elsewhere(uri) && (strings.Contains(uri, "?") || !strings.HasPrefix(uri, "http")) {
		return plain, nil
	}
	shown := berth.CleanURL(uri)
	all, err := store.Derived(tx, ws.Key(), "datastores", readDatastores)
	if err != nil {
		return Place{}, err
	}
	var own, admins, others []Place
	for _, s := range all {
		path, ok := s.Find(uri)
		p := Place{Datastore: s.Doc.Name, Name: path}
		switch {
		case !ok:
		case s.Doc.CreatedBy == user:
			own = append(own, p)
		case s.admin:
			admins = append(admins, p)
		default:
			others = append(others, p)
		}
	}
	if len(own) == 0 {
		own = admins
	}
	switch {
	case len(own) == 1:
		if err := cleanPath(own[0].Name); err != nil {
			return Place{}, berth.Errorf(berth.Invalid, "%s: %w", shown, err)
		}
		return own[0], nil
	case len(own) > 1:
		return Place{}, berth.Errorf(berth.Invalid, "%s is in several datastores, %s; name one of them, as in %s", shown, names(own), own[0].inDatastore())
	case len(others) > 0 && storage.Elsewhere(uri):
		return Place{}, berth.Errorf(berth.Invalid, "%s is in no datastore of yours or of an administrator; to use datastore %s, which somebody else created, "+
			"name it, as in %s", shown, others[0].Datastore, others[0].inDatastore())
	}
	return plain, nil
}

// names lists the datastores of places, oldest first.
func names(list []Place) string {
	var out []string
	for _, p := range list {
		out = append(out, p.Datastore)
	}
	return strings.Join(out, ", ")
}

// inDatastore is the place as a path in its datastore.
func (p Place) inDatastore() string {
	return "azureml://datastores/" + p.Datastore + "/paths/" + p.Name
}

// readDatastores are the datastores, oldest first, that an address can be in.
func readDatastores(docs []*store.Doc) []Datastore {
	var out []Datastore
	for _, d := range slices.Backward(docs) {
		s, err := ReadDatastore(d)
		if err != nil || s.Type == storage.Folder {
			continue // our own, or one that nothing can be read from
		}
		out = append(out, s)
	}
	return out
}

// Grant is the right of a task to have requests to a place signed.
type Grant struct {
	Datastore string `json:"datastore"`
	Path      string `json:"path,omitempty"`
	Write     bool   `json:"write,omitempty"`
	User      string `json:"user,omitempty"` // on whose behalf
}
