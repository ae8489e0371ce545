package blob

import (
	"context"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Reuse gives files that a user uploaded to one folder names in another, without their bytes: those
// of the tree that lie below from in the same container, have the hash that the tree says, and were
// written by that user. A hash alone opens nothing. It returns the paths of the others.
func (s *Store) Reuse(ctx context.Context, container, folder, from string, t *berth.Tree) (missing []string, err error) {
	folder, from = strings.TrimRight(folder, "/")+"/", strings.TrimRight(from, "/")+"/"
	for i := range t.Files {
		if err := checkNames(container, folder+t.Files[i].Path); err != nil {
			return nil, err
		}
	}
	for rest := t.Files; len(rest) > 0; {
		n := chunk(len(rest), func(i int) string { return folder + rest[i].Path })
		files := rest[:n]
		rest = rest[n:]
		var left []string
		err := s.db.Update(ctx, func(tx *store.Tx) error {
			left = left[:0]
			for i := range files {
				ok, err := reuse(ctx, tx, container, folder, from, &files[i])
				if err != nil {
					return err
				}
				if !ok {
					left = append(left, files[i].Path)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		missing = append(missing, left...)
	}
	return missing, ctx.Err()
}

// reuse gives one file its name. The content stays while the old name is there, which this
// transaction sees, and then for the new one.
func reuse(ctx context.Context, tx *store.Tx, container, folder, from string, f *berth.TreeFile) (bool, error) {
	user := writer(ctx)
	old, err := tx.Blob(container, from+f.Path)
	switch {
	case berth.CodeOf(err) == berth.NotFound:
		return false, nil
	case err != nil:
		return false, err
	case user == "" || old.Writer != user || old.Hash == "" || old.Hash != f.Hash || old.Size != f.Size:
		return false, nil
	}
	same, err := alreadyThere(tx, container, folder+f.Path, user, old.Hash)
	if err != nil || same != nil {
		return same != nil, err
	}
	at := now()
	return true, tx.PutBlob(&store.Blob{
		Container: container, Name: folder + f.Path, Size: old.Size, Hash: old.Hash, ContentType: old.ContentType, ContentMD5: old.ContentMD5,
		ETag: newETag(), Created: at, Modified: at, Writer: user,
	})
}
