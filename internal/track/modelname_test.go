package track_test

import (
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// containers are the names of the models that the workspace lists.
func (s *server) containers() (names []string) {
	s.t.Helper()
	err := s.db.View(s.t.Context(), func(tx *store.Tx) error {
		docs, err := tx.All(store.Query{Workspace: s.ws.Key, Kind: "models", Asc: true})
		for _, d := range docs {
			names = append(names, d.Name)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return names
}

// TestNamesThatDifferInCase: a registered model whose name differs from another's only in case is
// MLflow's alone: the workspace's models are not told apart by case.
func TestNamesThatDifferInCase(t *testing.T) {
	s := start(t, t.TempDir())
	for _, name := range []string{"tree", "TREE"} {
		s.must("POST", "registered-models/create", obj{"name": name})
		s.must("POST", "model-versions/create", obj{"name": name, "source": "s3://bucket/" + name})
		s.must("POST", "model-versions/create", obj{"name": name, "source": "s3://bucket/" + name})
	}
	if got := s.containers(); len(got) != 1 || got[0] != "tree" {
		t.Errorf("the workspace has %v", got)
	}
	for _, n := range []string{"1", "2", "3", "4"} {
		if m := s.model("tree", n); (m != nil) != (n < "3") || m != nil && m["modelUri"] != "s3://bucket/tree" {
			t.Errorf("version %s is %v", n, m)
		}
	}
	versions := s.must("GET", "model-versions/search?filter=name%3D%27TREE%27", nil)
	if at(versions, "model_versions", 1, "source") != "s3://bucket/TREE" {
		t.Errorf("MLflow has %v", versions)
	}
}

// TestModelsThatAreGone: a model whose last version was deleted or renamed is listed no more, and a
// version that is made later has the next number.
func TestModelsThatAreGone(t *testing.T) {
	s := start(t, t.TempDir())
	s.must("POST", "registered-models/create", obj{"name": "old"})
	for range 2 {
		s.must("POST", "model-versions/create", obj{"name": "old", "source": "s3://bucket/x"})
	}
	s.must("POST", "registered-models/rename", obj{"name": "old", "new_name": "Old"})
	if got := s.containers(); len(got) != 1 || got[0] != "Old" || s.model("Old", "1") == nil || s.model("Old", "2") == nil {
		t.Errorf("with another case there is %v", got)
	}
	s.must("POST", "registered-models/rename", obj{"name": "Old", "new_name": "new"})
	if got := s.containers(); len(got) != 1 || got[0] != "new" {
		t.Errorf("renamed, there is %v", got)
	}
	s.must("DELETE", "registered-models/delete", obj{"name": "new"})
	if got := s.containers(); got != nil {
		t.Errorf("deleted, there is %v", got)
	}
	s.must("POST", "registered-models/create", obj{"name": "new"})
	v := s.must("POST", "model-versions/create", obj{"name": "new", "source": "s3://bucket/x"})
	if at(v, "model_version", "version") != "3" || s.model("new", "3") == nil {
		t.Errorf("made again it is %v", v)
	}
	err := s.db.View(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Get(s.ws.Key, "models", "old", "")
		return err
	})
	if berth.CodeOf(err) != berth.NotFound {
		t.Error(err)
	}
}
