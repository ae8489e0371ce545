package locate_test

import (
	"path/filepath"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// TestBlob: only what names one container of ours is ours. "*" would be signed as all of them.
func TestBlob(t *testing.T) {
	l := locate.Locator{BaseURL: "https://127.0.0.1:1", Account: "st", Suffix: "berth/"}
	root := l.Root()
	for uri, ok := range map[string]bool{
		root + "/box":                  true,
		root + "/box/a/b%20c":          true,
		root + "/box/a?sig=x":          true,
		locate.CodeHost + "/box-1/a":   true,
		root:                           false,
		root + "/":                     false,
		root + "/*":                    false,
		root + "/*/a":                  false,
		root + "/%2a/a":                false,
		root + "/../a":                 false,
		root + "/Box/a":                false,
		locate.CodeHost + "/*/a":       false,
		root + "x/box/a":               false,
		"https://127.0.0.1:2/st.blob.": false,
	} {
		if c, n, got := l.Blob(uri); got != ok {
			t.Errorf("%s: %q %q %v", uri, c, n, got)
		}
	}
	if c, n, _ := l.Blob(root + "/box/a/b%20c/"); c != "box" || n != "a/b c" {
		t.Errorf("%q %q", c, n)
	}
}

// TestLatestIsNotArchived: what a job's azureml:NAME@latest means is what showing the model shows:
// the newest version that is not archived, or the newest where all are.
func TestLatestIsNotArchived(t *testing.T) {
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "berth.db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ws := berth.Workspace{Subscription: "s", Group: "g", Name: "w"}
	err = db.Update(t.Context(), func(tx *store.Tx) error {
		for _, d := range []*store.Doc{{Name: "m", Version: "1"}, {Name: "m", Version: "2", Archived: true}, {Name: "old", Version: "1", Archived: true}, {Name: "old", Version: "2", Archived: true}} {
			d.Workspace, d.Kind, d.Body = ws.Key(), "models/versions", []byte("{}")
			if err := tx.Insert(d); err != nil {
				return err
			}
		}
		for name, want := range map[string]string{"m": "1", "old": "2"} {
			for _, label := range []string{"", "latest", "Default"} {
				d, err := locate.Version(tx, ws, "models", berth.Ref{Name: name, Label: label})
				if err != nil {
					return err
				}
				if d.Version != want {
					t.Errorf("%s@%s is version %s, not %s", name, label, d.Version, want)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
