package backup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Verify reads everything that a backup consists of, and returns what is wrong with it.
func Verify(ctx context.Context, at Place, id string) (m Manifest, wrong []error, err error) {
	if m, err = Read(ctx, at, id); err != nil {
		return m, nil, err
	}
	temp, done, err := scratch(commonTemp())
	if err != nil {
		return m, nil, err
	}
	defer done()
	damaged := map[string]bool{}
	for _, hash := range m.Damaged {
		damaged[hash] = true
		wrong = append(wrong, berth.Errorf(berth.NotFound, "the content %s was missing or damaged in the home already", hash))
	}
	var mu sync.Mutex
	seen := map[string]bool{}
	check := func(ctx context.Context, c Content) error {
		mu.Lock()
		again := seen[c.Hash]
		seen[c.Hash] = true
		mu.Unlock()
		if again {
			return nil
		}
		path := filepath.Join(temp, c.Hash)
		defer os.Remove(path)
		err := fetchChecked(ctx, at, c, path)
		if code := berth.CodeOf(err); code == berth.NotFound || code == berth.Invalid {
			mu.Lock()
			defer mu.Unlock()
			wrong = append(wrong, err)
			return nil
		}
		return err
	}
	for _, f := range m.Files {
		if f.Folder || f.Link != "" {
			continue
		}
		if err := check(ctx, f.Content); err != nil {
			return m, wrong, err
		}
	}
	db := filepath.Join(temp, "database")
	if err := fetchChecked(ctx, at, m.Database, db); err != nil {
		return m, append(wrong, err), nil
	}
	if _, err := store.SnapshotSchema(ctx, db); err != nil {
		wrong = append(wrong, err)
	}
	list := filepath.Join(temp, "contents")
	if err := fetchChecked(ctx, at, m.Contents, list); err != nil {
		return m, append(wrong, err), nil
	}
	f, err := os.Open(list)
	if err != nil {
		return m, wrong, err
	}
	defer f.Close()
	return m, wrong, eachContent(ctx, f, damaged, check)
}

// prune removes backups until keep are left, and the objects that only those had. The caller holds
// the lock of the place.
func prune(ctx context.Context, at Place, keep int) (removed int, err error) {
	ids, err := List(ctx, at)
	if err != nil || len(ids) <= keep {
		return 0, err
	}
	used := map[string]bool{}
	for _, id := range ids[len(ids)-keep:] {
		if err := uses(ctx, at, id, used); err != nil {
			return 0, errors.Join(berth.Errorf(berth.Conflict, "no old backup was removed, because one of those to keep cannot be read"), err)
		}
	}
	for _, id := range ids[:len(ids)-keep] { // first: a backup is whole, or is not listed
		if err := at.Remove(ctx, folder+"/"+id+".json"); err != nil {
			return removed, err
		}
		removed++
	}
	var unused []string
	err = at.List(ctx, "objects", func(name string, _ int64) error {
		if hash := strings.ReplaceAll(strings.TrimPrefix(name, "objects/"), "/", ""); validHash(hash) && !used[hash] {
			unused = append(unused, name)
		}
		return nil
	})
	for _, name := range unused {
		if err := errors.Join(err, at.Remove(ctx, name)); err != nil {
			return removed, err
		}
	}
	return removed, err
}

// uses adds the hashes of a backup.
func uses(ctx context.Context, at Place, id string, used map[string]bool) error {
	m, err := Read(ctx, at, id)
	if err != nil {
		return err
	}
	used[m.Database.Hash], used[m.Contents.Hash] = true, true
	for _, f := range m.Files {
		used[f.Hash] = true
	}
	temp, done, err := scratch(commonTemp())
	if err != nil {
		return err
	}
	defer done()
	list := filepath.Join(temp, "contents")
	if err := fetchChecked(ctx, at, m.Contents, list); err != nil {
		return err
	}
	f, err := os.Open(list)
	if err != nil {
		return err
	}
	defer f.Close()
	var mu sync.Mutex
	return eachContent(ctx, f, nil, func(_ context.Context, c Content) error {
		mu.Lock()
		defer mu.Unlock()
		used[c.Hash] = true
		return nil
	})
}
