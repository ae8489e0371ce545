package blob_test

import (
	"context"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/store"
)

// TestBlocksAreTheirWritersOwn: what one user stages does not get into what another one commits.
func TestBlocksAreTheirWritersOwn(t *testing.T) {
	s := open(t)
	ann, bob := blob.WithUser(t.Context(), "ann"), blob.WithUser(t.Context(), "bob")
	if err := s.PutBlock(ann, "box", "train.sh", "1", strings.NewReader("echo mine")); err != nil {
		t.Fatal(err)
	}
	if err := s.PutBlock(bob, "box", "train.sh", "1", strings.NewReader("echo evil")); err != nil {
		t.Fatal(err)
	}
	if err := s.PutBlock(bob, "box", "train.sh", "2", strings.NewReader("more")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Blocks(ann, "box", "train.sh"); err != nil || len(got) != 1 {
		t.Errorf("ann sees the blocks %v, %v", got, err)
	}
	if _, err := s.CommitBlocks(ann, "box", "train.sh", []string{"1", "2"}, blob.PutOptions{}); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("a commit of another's block: %v", err)
	}
	if _, err := s.CommitBlocks(ann, "box", "train.sh", []string{"1"}, blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, "train.sh"); got != "echo mine" {
		t.Errorf("ann committed %q", got)
	}
}

// TestRepeatedCommitOfAnother: a list that one user committed is not done for another one who sends
// it.
func TestRepeatedCommitOfAnother(t *testing.T) {
	s := open(t)
	ann, bob := blob.WithUser(t.Context(), "ann"), blob.WithUser(t.Context(), "bob")
	if err := s.PutBlock(ann, "box", "LocalUpload/h/a", "1", strings.NewReader("one")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.CommitBlocks(ann, "box", "LocalUpload/h/a", []string{"1"}, blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.CommitBlocks(bob, "box", "LocalUpload/h/a", []string{"1"}, blob.PutOptions{})
	wantCode(t, err, berth.Invalid, "InvalidBlockList")
}

// TestBlocksForAnothersFolder: a block that can never be committed is refused when it comes, and
// one of a file that is there is not: it may be the same.
func TestBlocksForAnothersFolder(t *testing.T) {
	s := open(t)
	ann, bob := blob.WithUser(t.Context(), "ann"), blob.WithUser(t.Context(), "bob")
	if _, err := s.Put(ann, "box", "LocalUpload/h/a", strings.NewReader("one"), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	err := s.PutBlock(bob, "box", "LocalUpload/h/b", "1", strings.NewReader("two"))
	wantCode(t, err, berth.Conflict, "BlobImmutableDueToPolicy")
	_, err = s.CommitBlocks(bob, "box", "LocalUpload/h/b", nil, blob.PutOptions{})
	wantCode(t, err, berth.Conflict, "BlobImmutableDueToPolicy")
	if left := files(t, s, "blocks"); len(left) > 0 {
		t.Error("staged:", left)
	}
	if err := s.PutBlock(bob, "box", "LocalUpload/h/a", "1", strings.NewReader("one")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CommitBlocks(bob, "box", "LocalUpload/h/a", []string{"1"}, blob.PutOptions{}); err != nil {
		t.Error("the same content is refused:", err)
	}
}

// TestProofIsOfTheContent: who uploaded what was there has not uploaded what its owner makes of it
// afterwards.
func TestProofIsOfTheContent(t *testing.T) {
	s, db := openBoth(t, t.TempDir())
	ann, bob := blob.WithUser(t.Context(), "ann"), blob.WithUser(t.Context(), "bob")
	hold := func(version string) error {
		return db.Update(t.Context(), func(tx *store.Tx) error {
			_, err := blob.HoldWhole(tx, "box", "LocalUpload/h", version, "bob")
			return err
		})
	}
	for _, w := range []struct {
		ctx  context.Context
		text string
	}{{ann, "echo mine"}, {bob, "echo mine"}, {ann, "echo evil"}} {
		if _, err := s.Put(w.ctx, "box", "LocalUpload/h/a", strings.NewReader(w.text), blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := hold("code c:1"); berth.CodeOf(err) != berth.Conflict {
		t.Errorf("bob registers what ann put there after him: %v", err)
	}
	if _, err := s.Put(bob, "box", "LocalUpload/h/a", strings.NewReader("echo evil"), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := hold("code c:1"); err != nil {
		t.Errorf("bob uploaded all there is: %v", err)
	}
}
