// Package blob keeps bytes by content hash in a directory, and the names they go by in the
// database.
//
// Below the root directory:
//
//	objects/ab/cdef…   contents, named by their SHA-256; written once, never changed
//	tmp/               uploads under way
//	blocks/KEY/ID      staged blocks of uploads in parts, kept until they are committed or BlockAge old
//	logs/              logs of jobs, which the jobs on this machine can write to
//	rows/              results of mini-batches, which they cannot
//	trash/             objects between "nobody names it" and "removed"; readers look here too
//
// A name is never used as a path. A blob is in the index only once its object is on the disk to
// stay, so a crash at any instant leaves at most files that nobody names, and GC removes those.
//
// Several processes may share one directory and one database. Within one process GC never disturbs
// an upload whatever its grace; between processes the grace must be longer than it takes to index
// an upload that has arrived whole.
package blob

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/berthml/berth/internal/store"
)

// Store is a directory of objects with its index. It is safe for concurrent use.
type Store struct {
	dir  string
	root *os.Root // live files are opened through it, so that no link leads out of the directory
	db   *store.DB

	remote     Remote // nil: contents are in the directory, and nowhere else
	cacheBytes int64
	fetches    singleflight.Group
	added      atomic.Int64 // bytes since the directory was last looked through
	evicting   sync.Mutex

	surveys    chan struct{} // those that read the whole index
	collecting sync.Mutex    // one GC at a time
	staging    sync.Mutex    // a block joins the others, or they all go

	mu      sync.Mutex
	pins    map[string]int         // hashes that uploads of this process are about to index
	temps   map[string]struct{}    // base names of the temp files in use
	commits map[string]*recentList // by staging key
}

// Open opens the store in dir, which is made when it does not exist.
func Open(dir string, db *store.DB) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	for i := range 256 {
		if err := os.MkdirAll(filepath.Join(dir, "objects", fmt.Sprintf("%02x", i)), 0o700); err != nil {
			return nil, fmt.Errorf("opening the blob directory: %w", err)
		}
	}
	for _, d := range []string{"tmp", "blocks", "trash", "objects", "."} {
		p := filepath.Join(dir, d)
		if err := os.MkdirAll(p, 0o700); err != nil {
			return nil, fmt.Errorf("opening the blob directory: %w", err)
		}
		if err := syncDir(p); err != nil {
			return nil, fmt.Errorf("opening the blob directory: %w", err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the blob directory: %w", err)
	}
	return &Store{
		surveys: make(chan struct{}, maxSurveys),
		dir:     dir,
		root:    root,
		db:      db,
		pins:    map[string]int{},
		temps:   map[string]struct{}{},
		commits: map[string]*recentList{},
	}, nil
}

// Close releases the directory. Readers stay usable.
func (s *Store) Close() error { return s.root.Close() }

// Dir is the root directory: where the files of live blobs belong.
func (s *Store) Dir() string { return s.dir }

// Objects is the directory of contents by their hash; empty where it need not have all of them.
func (s *Store) Objects() string {
	if s.remote != nil {
		return ""
	}
	return filepath.Join(s.dir, "objects")
}

// newETag is a tag no other version of a blob has.
func newETag() string { return fmt.Sprintf("0x%016X", rand.Uint64()) }

// now is the time as the wire can carry it back: HTTP dates have whole seconds.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }
