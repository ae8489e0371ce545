package blob

import (
	"context"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// A node keeps the folders that tasks read, and must know without listing one whether it is as it
// was. For that a folder has a version token, kept in the hold on it: it is given out with the
// first launch that names the folder, and dropped by the first write below it afterwards.

// Version is the version token of what lies at a place: as long as nothing below the place is
// written it stays the same, and it never comes again. A whole container has none.
func Version(tx *store.Tx, container, name string) (string, error) {
	name = strings.TrimRight(name, "/")
	if name == "" {
		return "", nil
	}
	if there, err := anything(tx, container, name); !there || err != nil { // a job's files go with the job, unseen by holds
		return "", err
	}
	h, d, err := getHold(tx, container, name)
	if err != nil || h.Version != "" {
		return h.Version, err
	}
	h.Version = berth.NewGUID()
	return h.Version, putHold(tx, container, name, h, d)
}

// anything says whether there is a blob of a name, or one in the folder of that name.
func anything(tx *store.Tx, container, name string) (bool, error) {
	page, err := tx.ListBlobs(store.BlobQuery{Container: container, Prefix: name + "/", Limit: 1})
	if err != nil || len(page) > 0 {
		return len(page) > 0, err
	}
	_, err = tx.Blob(container, name)
	if berth.CodeOf(err) == berth.NotFound {
		return false, nil
	}
	return err == nil, err
}

// Changed drops the version tokens of a place and of the folders above it, for those who write to
// the index of blobs themselves.
func Changed(tx *store.Tx, container, name string) error {
	name = strings.TrimRight(name, "/")
	var places []string
	for i := 0; i <= len(name); i++ {
		if i == len(name) || name[i] == '/' {
			places = append(places, name[:i])
		}
	}
	return changed(tx, container, places)
}

// changed drops the version tokens of places below which something is written.
func changed(tx *store.Tx, container string, places []string) error {
	for _, name := range places {
		h, d, err := getHold(tx, container, name)
		if err != nil {
			return err
		}
		if d == nil || h.Version == "" {
			continue
		}
		if h.Version = ""; h.Owner == "" && len(h.Versions) == 0 {
			err = tx.Delete("", kindHolds, d.Name, "")
		} else {
			err = putHold(tx, container, name, h, d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Entry is a file of a folder, or an empty folder in it.
type Entry struct {
	Path string // below the folder; a folder's ends with a slash
	Size int64
	Hash string
}

// Entries calls f for each file below a folder, in the order of their names. A folder without files
// is NotFound, and one with a file that still grows Conflict.
func (s *Store) Entries(ctx context.Context, container, folder string, f func(Entry) error) error {
	o := ListOptions{Prefix: strings.TrimRight(folder, "/") + "/"}
	if o.Prefix == "/" {
		o.Prefix = ""
	}
	for n := 0; ; {
		blobs, _, next, err := s.List(ctx, container, o)
		if err != nil {
			return err
		}
		for _, b := range blobs {
			if b.Meta["hdi_isfolder"] == "true" {
				continue // the mark of a folder, as Azure's clients make it
			}
			n++
			if b.Hash == "" {
				return berth.Errorf(berth.Conflict, "blob %s is still being written", quote(b.Name))
			}
			if err := f(Entry{Path: strings.TrimPrefix(b.Name, o.Prefix), Size: b.Size, Hash: b.Hash}); err != nil {
				return err
			}
		}
		if o.After = next; next == "" {
			if n == 0 {
				return notFound(container, folder)
			}
			return nil
		}
	}
}
