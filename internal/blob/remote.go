package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Remote keeps contents elsewhere, by their hash. The directory of the store is then a cache of
// them, and a blob is in the index only once its content is there.
type Remote interface {
	// Put keeps the content of a file. It is there to stay when Put returns.
	Put(ctx context.Context, hash string, f *os.File) error
	// Get brings a content to a path; Modified is when it was last put. They are NotFound for one
	// that is not there.
	Get(ctx context.Context, hash, path string) error
	Modified(ctx context.Context, hash string) (time.Time, error)
	Delete(ctx context.Context, hash string) error
	// List calls f for each content whose hash begins with two hex digits.
	List(ctx context.Context, shard string, f func(hash string, size int64, modified time.Time) error) error
}

// OpenRemote is Open for a store whose contents are elsewhere. dir keeps up to cache bytes of them.
func OpenRemote(dir string, db *store.DB, remote Remote, cache int64) (*Store, error) {
	s, err := Open(dir, db)
	if err == nil {
		s.remote, s.cacheBytes = remote, cache
	}
	return s, err
}

// A removal of a content elsewhere is noted in the database, so that nobody names a content that
// is being deleted. Its note stays for a while when it is over: who put the content before that
// puts it again.
const (
	kindRemovals  = "blobremovals"
	removalMemory = 24 * time.Hour
)

type removal struct {
	ID   string    `json:"id"`
	Over time.Time `json:"over,omitzero"` // zero: the content may be deleted at any moment
}

func getRemoval(tx *store.Tx, hash string) (*store.Doc, removal, error) {
	d, err := tx.Get("", kindRemovals, hash, "")
	if berth.CodeOf(err) == berth.NotFound {
		return nil, removal{}, nil
	}
	if err != nil {
		return nil, removal{}, err
	}
	r, err := store.State[removal](d)
	return d, r, err
}

// errAgain says that a content has to be put before it can be named.
var errAgain = errors.New("the content has to be put again")

// sending is what is known of contents on their way to being named.
type sending struct {
	hashes []string          // each once
	sent   map[string]string // those that were put since the removal of this ID was over
}

// name runs a transaction that gives contents, which are in the directory and pinned, their names.
func (s *Store) name(ctx context.Context, contents []content, f func(tx *store.Tx) error) error {
	if s.remote == nil {
		return s.db.Update(ctx, f)
	}
	x := sending{sent: map[string]string{}}
	for _, c := range contents {
		x.hashes = append(x.hashes, c.hash)
	}
	slices.Sort(x.hashes)
	x.hashes = slices.Compact(x.hashes)
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		if err := s.send(ctx, &x); err != nil {
			return err
		}
		err := s.db.Update(ctx, func(tx *store.Tx) error {
			if err := x.confirm(tx); err != nil {
				return err
			}
			return f(tx)
		})
		if !errors.Is(err, errAgain) {
			var size int64
			for _, c := range contents {
				size += c.size
			}
			s.grew(size)
			return err
		}
		if wait > 5*time.Second {
			return berth.Errorf(berth.Unavailable, "the content is being removed from the server's storage; try again")
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// confirm refuses contents that nobody names and that were not put since they were last removed.
func (x *sending) confirm(tx *store.Tx) error {
	for _, hash := range x.hashes {
		used, err := tx.BlobHashUsed(hash)
		if err != nil {
			return err
		}
		if used {
			continue
		}
		d, r, err := getRemoval(tx, hash)
		if err != nil {
			return err
		}
		if id, ok := x.sent[hash]; !ok || id != r.ID || d != nil && r.Over.IsZero() {
			return errAgain
		}
		if d != nil {
			if err := tx.Delete("", kindRemovals, hash, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// send puts the contents that nobody names yet.
func (s *Store) send(ctx context.Context, x *sending) error {
	var want map[string]string // the removals that were over, by hash
	err := s.db.View(ctx, func(tx *store.Tx) error {
		want = map[string]string{}
		for _, hash := range x.hashes {
			used, err := tx.BlobHashUsed(hash)
			if err != nil {
				return err
			}
			_, r, err := getRemoval(tx, hash)
			if err != nil {
				return err
			}
			if id, ok := x.sent[hash]; !used && (!ok || id != r.ID) && (r.ID == "" || !r.Over.IsZero()) {
				want[hash] = r.ID
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for hash, id := range want {
		x.sent[hash] = id
		g.Go(func() error {
			f, err := s.openLocal(hash)
			if err != nil {
				return err
			}
			defer f.Close()
			return s.remote.Put(gctx, hash, f)
		})
	}
	return g.Wait()
}

// fetch brings a content to the directory. Those who want the same wait for one.
func (s *Store) fetch(ctx context.Context, hash string) error {
	done := s.fetches.DoChan(hash, func() (any, error) {
		return nil, s.fetchOne(context.WithoutCancel(ctx), hash)
	})
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Store) fetchOne(ctx context.Context, hash string) error {
	defer s.pin(hash)()
	t, err := s.newTemp()
	if err != nil {
		return s.diskError("fetching a blob", err)
	}
	defer t.discard()
	if err := s.remote.Get(ctx, hash, t.Name()); err != nil {
		return s.diskError("fetching a blob", err)
	}
	sum := sha256.New()
	n, err := io.Copy(sum, t.File)
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != hash {
		return berth.Errorf(berth.Internal, "the content %s was altered in the server's storage: its hash is %s", hash, got)
	}
	if err := t.place(hash); err != nil {
		return s.diskError("fetching a blob", err)
	}
	s.grew(n)
	return nil
}

// grew has the oldest contents of the directory removed once in a while.
func (s *Store) grew(n int64) {
	if s.remote == nil || s.added.Add(n) < s.cacheBytes/8 {
		return
	}
	s.added.Store(0)
	if s.evicting.TryLock() {
		go func() {
			defer s.evicting.Unlock()
			_ = s.evict() // tried again when more has come
		}()
	}
}

// evict removes contents from the directory, those used longest ago first, until it has room for
// what is to come.
func (s *Store) evict() error {
	type cached struct {
		hash string
		size int64
		used time.Time
	}
	var all []cached
	var total int64
	for i := range 256 {
		shard := fmt.Sprintf("%02x", i)
		entries, err := os.ReadDir(filepath.Join(s.dir, "objects", shard))
		if err != nil {
			return err
		}
		for _, e := range entries {
			if info, err := e.Info(); err == nil && isHash(shard+e.Name()) {
				all = append(all, cached{shard + e.Name(), info.Size(), info.ModTime()})
				total += info.Size()
			}
		}
	}
	slices.SortFunc(all, func(a, b cached) int { return a.used.Compare(b.used) })
	for _, c := range all {
		if total <= s.cacheBytes*7/8 {
			break
		}
		s.mu.Lock()
		if s.pins[c.hash] == 0 { // it is not on its way to being named
			if os.Remove(s.object(c.hash)) == nil {
				total -= c.size
			}
		}
		s.mu.Unlock()
	}
	return nil
}

// gcRemote removes contents elsewhere that no blob names and that were put longer ago than grace.
func (s *Store) gcRemote(ctx context.Context, grace time.Duration, st *Stats) error {
	if s.remote == nil {
		return nil
	}
	if err := s.finishRemovals(ctx, grace); err != nil {
		return err
	}
	for i := range 256 {
		shard := fmt.Sprintf("%02x", i)
		sizes := map[string]int64{}
		err := s.remote.List(ctx, shard, func(hash string, size int64, modified time.Time) error {
			if isHash(hash) && time.Since(modified) >= grace {
				sizes[hash] = size
			}
			return nil
		})
		if err != nil {
			return err
		}
		named, err := s.namedHashes(ctx, shard, page)
		if err != nil {
			return err
		}
		for hash, size := range sizes {
			if named[hash] {
				continue
			}
			removed, err := s.remove(ctx, hash, grace)
			if err != nil {
				return err
			}
			if removed {
				st.Objects, st.Bytes = st.Objects+1, st.Bytes+size
			}
		}
	}
	return nil
}

// finishRemovals goes on with removals that were cut short, and forgets those that are long over.
func (s *Store) finishRemovals(ctx context.Context, grace time.Duration) error {
	var docs []*store.Doc
	err := s.db.View(ctx, func(tx *store.Tx) (err error) {
		docs, err = tx.All(store.Query{Kind: kindRemovals})
		return err
	})
	if err != nil {
		return err
	}
	for _, d := range docs {
		r, err := store.State[removal](d)
		if err != nil {
			return err
		}
		switch {
		case r.Over.IsZero():
			_, err = s.remove(ctx, d.Name, grace)
		case time.Since(r.Over) > removalMemory:
			err = s.forgetRemoval(ctx, d.Name, r.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) forgetRemoval(ctx context.Context, hash, id string) error {
	return s.db.Update(ctx, func(tx *store.Tx) error {
		d, r, err := getRemoval(tx, hash)
		if err != nil || d == nil || r.ID != id {
			return err
		}
		return tx.Delete("", kindRemovals, hash, "")
	})
}

// remove deletes a content elsewhere unless it is named, or was put again.
func (s *Store) remove(ctx context.Context, hash string, grace time.Duration) (bool, error) {
	id := ""
	err := s.db.Update(ctx, func(tx *store.Tx) error {
		id = ""
		used, err := tx.BlobHashUsed(hash)
		if err != nil || used {
			return err
		}
		id = berth.NewGUID()
		return putRemoval(tx, hash, removal{ID: id})
	})
	if err != nil || id == "" {
		return false, err
	}
	modified, err := s.remote.Modified(ctx, hash)
	switch {
	case berth.CodeOf(err) == berth.NotFound: // a removal that was cut short had got so far
	case err != nil:
		return false, err
	case time.Since(modified) < grace: // an upload counts on it
		return false, s.forgetRemoval(ctx, hash, id)
	default:
		if err := s.remote.Delete(ctx, hash); err != nil {
			return false, err
		}
	}
	err = s.db.Update(ctx, func(tx *store.Tx) error {
		return putRemoval(tx, hash, removal{ID: id, Over: time.Now().UTC()})
	})
	return err == nil, err
}

func putRemoval(tx *store.Tx, hash string, r removal) error {
	d, _, err := getRemoval(tx, hash)
	if err != nil {
		return err
	}
	fresh := d == nil
	if fresh {
		d = &store.Doc{Kind: kindRemovals, Name: hash, Body: []byte("{}")}
	}
	if err := store.SetState(d, r); err != nil {
		return err
	}
	if fresh {
		return tx.Insert(d)
	}
	return tx.Save(d)
}
