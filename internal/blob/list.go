package blob

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// ListOptions select what List returns.
type ListOptions struct {
	Prefix string
	// Delimiter folds the names that have it behind the prefix into one entry per part up to it.
	Delimiter string
	After     string // where the last page ended
	Limit     int    // of blobs and folded prefixes together; 0: 5000
}

// page is how many rows are read at a time.
const page = 1000

// List lists the blobs of a container, and the prefixes they were folded into, each in byte order
// of their names. next is the After of the next page, empty behind the last one.
func (s *Store) List(ctx context.Context, container string, o ListOptions) (blobs []*store.Blob, prefixes []string, next string, err error) {
	if err := CheckContainer(container); err != nil {
		return nil, nil, "", err
	}
	for _, text := range []string{o.Prefix, o.After} {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return nil, nil, "", berth.Errorf(berth.Invalid, "%s is not a valid blob name prefix", quote(text))
		}
	}
	if o.Limit <= 0 {
		o.Limit = 5000
	}
	after := o.After
	for {
		var rows []*store.Blob
		want := min(page, o.Limit-len(blobs)-len(prefixes)+1)
		err := s.db.View(ctx, func(tx *store.Tx) (err error) {
			rows, err = tx.ListBlobs(store.BlobQuery{Container: container, Prefix: o.Prefix, After: after, Limit: want})
			return err
		})
		if err != nil {
			return nil, nil, "", err
		}
		for _, b := range rows {
			if b.Name <= after { // stepped over within this page
				continue
			}
			if len(blobs)+len(prefixes) == o.Limit {
				return s.currentAll(blobs), prefixes, after, nil
			}
			if p, ok := fold(b.Name, o.Prefix, o.Delimiter); ok {
				prefixes = append(prefixes, p)
				after = p + string(lastRune)
			} else {
				blobs = append(blobs, b)
				after = b.Name
			}
		}
		if len(rows) < want {
			return s.currentAll(blobs), prefixes, "", nil
		}
	}
}

func fold(name, prefix, delimiter string) (string, bool) {
	if delimiter == "" {
		return "", false
	}
	i := strings.Index(name[len(prefix):], delimiter)
	if i < 0 {
		return "", false
	}
	return name[:len(prefix)+i+len(delimiter)], true
}

func (s *Store) currentAll(blobs []*store.Blob) []*store.Blob {
	blobs = slices.Clone(blobs)
	for i, b := range blobs {
		blobs[i] = s.current(b)
	}
	return blobs
}

// maxSurveys is how many callers read all names of a workspace at a time.
const maxSurveys = 2

// Survey waits until the caller may read all names of a workspace, which takes long and keeps the
// database busy.
func (s *Store) Survey(ctx context.Context) (done func(), err error) {
	select {
	case s.surveys <- struct{}{}:
		return func() { <-s.surveys }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
