package blob_test

import (
	"context"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/store"
)

// TestVersionInASharedFolder: a version in a folder that others write to as well keeps what its
// maker wrote. Others go on with their own.
func TestVersionInASharedFolder(t *testing.T) {
	s, db := openBoth(t, t.TempDir())
	ann, bob := blob.WithUser(t.Context(), "ann"), blob.WithUser(t.Context(), "bob")
	write := func(ctx context.Context, name, text string) error {
		_, err := s.Put(ctx, "box", name, strings.NewReader(text), blob.PutOptions{})
		return err
	}
	for _, err := range []error{
		write(ann, "set/a.csv", "1"), write(bob, "set/b.csv", "1"), write(bob, "set/gone.csv", "1"), write(t.Context(), "set/server.csv", "1"),
		db.Update(t.Context(), func(tx *store.Tx) error { return blob.Hold(tx, "box", "set", "data asset d:1", "ann") }),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for what, err := range map[string]error{
		"bob's own file": write(bob, "set/b.csv", "2"), "a new file": write(bob, "set/c.csv", "1"), "bob's new file again": write(bob, "set/c.csv", "2"),
		"deleting bob's own file": s.Delete(bob, "box", "set/gone.csv"), "the same content": write(bob, "set/a.csv", "1"),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.SetMeta(bob, "box", "set/b.csv", map[string]string{"k": "v"}, ""); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"ann's file by bob": write(bob, "set/a.csv", "2"), "ann's file by ann": write(ann, "set/a.csv", "2"), "deleting ann's file": s.Delete(bob, "box", "set/a.csv"),
		"a file of an unknown writer": write(bob, "set/server.csv", "2"),
	} {
		if berth.CodeOf(err) != berth.Conflict {
			t.Errorf("%s: %v", what, err)
		}
	}
	b, err := s.Stat(t.Context(), "box", "set/b.csv")
	if err != nil || b.Meta["k"] != "v" || read(t, s, "set/b.csv") != "2" || read(t, s, "set/a.csv") != "1" {
		t.Errorf("%+v, %v", b, err)
	}
	if err := db.Update(t.Context(), func(tx *store.Tx) error { return blob.Release(tx, "box", "set", "data asset d:1") }); err != nil {
		t.Fatal(err)
	}
	if err := write(bob, "set/a.csv", "2"); err != nil {
		t.Error("after the version:", err)
	}
}

// TestVersionInAFolderOfAnother: whose folder it is goes on writing there, whoever registers it.
func TestVersionInAFolderOfAnother(t *testing.T) {
	s, db := openBoth(t, t.TempDir())
	bob := blob.WithUser(t.Context(), "bob")
	write := func(text string) error {
		_, err := s.Put(bob, "box", "bobs/x", strings.NewReader(text), blob.PutOptions{})
		return err
	}
	hold := func(user string) error {
		return db.Update(t.Context(), func(tx *store.Tx) error { return blob.Hold(tx, "box", "bobs", "data asset "+user+":1", user) })
	}
	for _, err := range []error{
		db.Update(t.Context(), func(tx *store.Tx) error { return blob.Own(tx, "box", "bobs", "bob") }), write("1"), hold("ann"), write("2"), hold("bob"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := write("3"); berth.CodeOf(err) != berth.Conflict {
		t.Errorf("bob registered it himself: %v", err)
	}
}
