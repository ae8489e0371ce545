package asset_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/asset"
	"github.com/berthml/berth/internal/store"
)

// TestVersions: versions without a name of their own are numbered on from the highest number, and
// the latest is the one made last.
func TestVersions(t *testing.T) {
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "db"), store.Options{NoSync: true, Rehearse: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, step := range []struct {
		ask, want string
		container asset.Container
	}{
		{"", "1", asset.Container{Latest: "1", Next: "2"}},
		{"", "2", asset.Container{Latest: "2", Next: "3"}},
		{"7", "7", asset.Container{Latest: "7", Next: "8"}},
		{"5", "5", asset.Container{Latest: "5", Next: "8"}},
		{"beta", "beta", asset.Container{Latest: "beta", Next: "8"}},
		{"", "8", asset.Container{Latest: "8", Next: "9"}},
		{"9223372036854775808", "9223372036854775808", asset.Container{Latest: "9223372036854775808", Next: "9"}},
		{"", "9", asset.Container{Latest: "9", Next: "10"}},
	} {
		var got string
		var own asset.Container
		err := db.Update(t.Context(), func(tx *store.Tx) (err error) {
			got, err = asset.Create(tx, asset.Version{
				Workspace: "w", Collection: "data", Name: "d", Version: step.ask, User: "ann", Properties: map[string]any{"dataUri": "x"},
			})
			if err != nil {
				return err
			}
			d, err := tx.Get("w", "data", "d", "")
			if err != nil {
				return err
			}
			return json.Unmarshal(d.Own, &own)
		})
		if err != nil || got != step.want {
			t.Fatalf("version %q becomes %q, %v", step.ask, got, err)
		}
		if diff := cmp.Diff(step.container, own); diff != "" {
			t.Errorf("after %q (-want +got):\n%s", step.ask, diff)
		}
	}
	create := func(version string) error {
		return db.Update(t.Context(), func(tx *store.Tx) error {
			_, err := asset.Create(tx, asset.Version{Workspace: "w", Collection: "data", Name: "d", Version: version, User: "ann"})
			return err
		})
	}
	// Nobody ends the numbering.
	for _, high := range []string{"9223372036854775807", "9223372036854775806", "4611686018427387905"} {
		if err := create(high); berth.CodeOf(err) != berth.Invalid {
			t.Errorf("version %s gives %v", high, err)
		}
	}
	for _, version := range []string{"4611686018427387904", "", "", "4611686018427387907"} {
		if err := create(version); err != nil {
			t.Errorf("version %q: %v", version, err)
		}
	}
	// A version is never made twice, and nothing of the attempt stays.
	err = db.Update(t.Context(), func(tx *store.Tx) error {
		_, err := asset.Create(tx, asset.Version{Workspace: "w", Collection: "data", Name: "d", Version: "5", User: "ben"})
		return err
	})
	if berth.CodeOf(err) != berth.Conflict {
		t.Errorf("a version that is there gives %v", err)
	}
}

// TestContainerGoesWithItsVersions: when the latest version is deleted another one is the latest,
// and with the last one goes the container. The numbers go on.
func TestContainerGoesWithItsVersions(t *testing.T) {
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "db"), store.Options{NoSync: true, Rehearse: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	create := func() (version string) {
		t.Helper()
		err := db.Update(t.Context(), func(tx *store.Tx) (err error) {
			version, err = asset.Create(tx, asset.Version{Workspace: "w", Collection: "models", Name: "m", User: "ann"})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return version
	}
	remove := func(version string) (own asset.Container, err error) {
		t.Helper()
		err = db.Update(t.Context(), func(tx *store.Tx) error {
			d, err := tx.Get("w", "models/versions", "m", version)
			if err != nil {
				return err
			}
			return asset.Delete(tx, "models", d)
		})
		if err != nil {
			t.Fatal(err)
		}
		err = db.View(t.Context(), func(tx *store.Tx) error {
			d, err := tx.Get("w", "models", "m", "")
			if err != nil {
				return err
			}
			own, err = store.State[asset.Container](d)
			return err
		})
		return own, err
	}
	for range 3 {
		create()
	}
	for _, step := range []struct{ gone, latest string }{{"1", "3"}, {"3", "2"}} {
		if own, err := remove(step.gone); err != nil || own != (asset.Container{Latest: step.latest, Next: "4"}) {
			t.Errorf("without %s: %v, %v", step.gone, own, err)
		}
	}
	for _, next := range []string{"4", "5"} {
		if own, err := remove(map[string]string{"4": "2", "5": "4"}[next]); berth.CodeOf(err) != berth.NotFound {
			t.Errorf("without versions there is %v, %v", own, err)
		}
		if got := create(); got != next {
			t.Errorf("made again it is version %s, not %s", got, next)
		}
	}
}
