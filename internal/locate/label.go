package locate

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// KindRegistered is the kind of the documents of MLflow's registered models.
const KindRegistered = "mlflow/registered-models"

// Registered is what such a document says that other packages than track read too.
type Registered struct {
	Name    string
	Aliases map[string]int // to numbers of versions
}

// aliased finds the version of a model that an alias of MLflow's registry points to.
func aliased(tx *store.Tx, ws berth.Workspace, name, alias string) (*store.Doc, error) {
	d, err := tx.Get(ws.Key(), "models", name, "")
	if err != nil && berth.CodeOf(err) != berth.NotFound {
		return nil, err
	}
	if err == nil {
		name = d.Name // names of models of the workspace are not told apart by case
	}
	docs, err := tx.List(store.Query{Workspace: ws.Key(), Kind: KindRegistered, Hash: store.HashOfName(name), Limit: 1})
	if err != nil {
		return nil, err
	}
	var m Registered
	if len(docs) > 0 {
		if m, err = store.State[Registered](docs[0]); err != nil {
			return nil, berth.Errorf(berth.Internal, "registered model %s cannot be read: %w", name, err)
		}
	}
	if n, ok := m.Aliases[alias]; ok {
		return tx.Get(ws.Key(), "models/versions", name, strconv.Itoa(n))
	}
	has := "latest"
	for _, a := range slices.Sorted(maps.Keys(m.Aliases)) {
		has += ", " + a
	}
	return nil, berth.Missingf("model %s has no label or alias %q; it has %s", name, alias, has)
}

// IsNewest reports whether a label means the newest version.
func IsNewest(label string) bool {
	return strings.EqualFold(label, "latest") || strings.EqualFold(label, "default")
}

// Newest is the newest version by creation that is not archived, or the newest at all, nil where
// there is none. kind is that of the versions.
func Newest(tx *store.Tx, workspace, kind, name string) (*store.Doc, error) {
	active := false
	for _, archived := range []*bool{&active, nil} {
		docs, err := tx.List(store.Query{Workspace: workspace, Kind: kind, Name: name, Archived: archived, Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(docs) > 0 {
			return docs[0], nil
		}
	}
	return nil, nil
}

// Labelled finds the version of an asset that a label means: latest, as no label does, or for
// models an alias of MLflow's registry too.
func Labelled(tx *store.Tx, ws berth.Workspace, collection, name, label string) (*store.Doc, error) {
	if label != "" && !IsNewest(label) {
		if collection == "models" {
			return aliased(tx, ws, name, label)
		}
		return nil, berth.Errorf(berth.Invalid, "%s@%s: the labels are latest and default", name, label)
	}
	d, err := Newest(tx, ws.Key(), collection+"/versions", name)
	if err == nil && d == nil {
		err = notThere(tx, ws, collection, name, name)
	}
	return d, err
}
