package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// commitMemory is how long a commit is remembered, so that a client that gave up waiting and asks
// again is told what became of it.
const commitMemory = 15 * time.Minute

// A recentList is the last list that a writer committed to a name. Holding mu is committing to that
// name.
type recentList struct {
	mu   sync.Mutex
	used int       // holders and waiters; guarded by Store.mu
	at   time.Time // last use; guarded by Store.mu

	digest, etag string
}

// CommitBlocks makes the blocks that the writer staged with these ids, in this order, the content
// of a blob, and forgets what else they staged for it. A list that was committed moments ago and is
// sent again is a repeated request and succeeds. Errors are Put's; a block that is not staged is
// Invalid.
func (s *Store) CommitBlocks(ctx context.Context, container, name string, ids []string, o PutOptions) (*store.Blob, error) {
	if err := checkNames(container, name); err != nil {
		return nil, err
	}
	if len(ids) > MaxBlocks {
		return nil, &berth.Error{Code: berth.Invalid, Wire: "BlockListTooLong", Msg: fmt.Sprintf("a blob has at most %d blocks", MaxBlocks)}
	}
	if err := s.mayAdd(ctx, container, name); err != nil {
		return nil, err
	}
	key, digest := stageKey(ctx, container, name), listDigest(ids)
	last := s.lockCommit(key)
	defer s.unlockCommit(last)
	if b := s.committed(ctx, container, name, key, digest, last); b != nil {
		return b, nil
	}
	if err := s.admit(ctx, container, name, o); err != nil {
		return nil, err
	}
	if err := s.room(s.listSize(key, ids)); err != nil {
		return nil, err
	}
	t, err := s.newTemp()
	if err != nil {
		return nil, s.diskError("committing blocks", err)
	}
	defer t.discard()
	c, err := s.assemble(ctx, t, key, ids)
	if err != nil {
		return nil, s.diskError("committing blocks", err)
	}
	c.md5 = o.MD5
	unpin, err := s.keep(t, c, o.check)
	if err != nil {
		return nil, err
	}
	defer unpin()
	b, err := s.index(ctx, container, name, c, o)
	if err != nil {
		return nil, err
	}
	last.digest, last.etag = digest, b.ETag
	return b, nil
}

// listSize is how many bytes a list of blocks comes to: a block counts as often as it is named. One
// that is not there counts nothing, and is found out when it is opened.
func (s *Store) listSize(key string, ids []string) (total int64) {
	sizes := map[string]int64{}
	for _, id := range ids {
		size, ok := sizes[id]
		if !ok {
			if info, err := os.Stat(filepath.Join(s.stage(key), blockFile(id))); err == nil {
				size = max(0, info.Size()-trailerSize)
			}
			sizes[id] = size
		}
		total += size
	}
	return total
}

// assemble copies the blocks to t and hashes them on the way. Each file is opened once for both,
// since a block that is uploaded again takes the name of the one before.
func (s *Store) assemble(ctx context.Context, t *temp, key string, ids []string) (content, error) {
	type part struct {
		f    *os.File
		id   string
		size int64
		crc  uint32
	}
	g, ctx := errgroup.WithContext(ctx)
	parts := make(chan part, 4)
	sum := newSums(false)
	var total int64
	g.Go(func() error {
		defer close(parts)
		for _, id := range ids {
			f, size, crc, err := s.openBlock(key, id)
			if err != nil {
				return err
			}
			if _, err := io.CopyN(t.File, f, size); err != nil {
				f.Close()
				return err
			}
			writeback(t.File, total, size)
			total += size
			select {
			case parts <- part{f, id, size, crc}: // the hasher's to close
			case <-ctx.Done():
				f.Close()
				return ctx.Err()
			}
		}
		return nil
	})
	g.Go(func() error {
		var err error
		for p := range parts { // to the end, so that every file is closed
			if err == nil {
				err = sumBlock(sum, p.f, p.id, p.size, p.crc)
			}
			p.f.Close()
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return content{}, err
	}
	return sum.content(total), nil
}

func sumBlock(sum io.Writer, f *os.File, id string, size int64, want uint32) error {
	buf := buffers.Get().(*[small]byte)
	defer buffers.Put(buf)
	r, crc := io.NewSectionReader(f, 0, size), uint32(0)
	for {
		n, err := fill(r, buf[:])
		crc = crc32.Update(crc, castagnoli(), buf[:n])
		sum.Write(buf[:n]) //nolint:errcheck // hashes do not fail
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if crc != want {
		return &berth.Error{
			Code: berth.Invalid, Wire: "InvalidBlockList",
			Msg: fmt.Sprintf("block %s did not survive a crash of this machine: upload it again", quote(id)),
		}
	}
	return nil
}

// committed is the blob when this very list is what it was last made of, and nothing has been
// staged since.
func (s *Store) committed(ctx context.Context, container, name, key, digest string, last *recentList) *store.Blob {
	if last.digest != digest {
		return nil
	}
	if _, err := os.Stat(s.stage(key)); err == nil {
		return nil
	}
	b, err := s.row(ctx, container, name)
	if err != nil || b.ETag != last.etag {
		return nil
	}
	return b
}

func (s *Store) lockCommit(key string) *recentList {
	s.mu.Lock()
	for k, l := range s.commits {
		if len(s.commits) < 256 {
			break
		}
		if l.used == 0 && time.Since(l.at) > commitMemory {
			delete(s.commits, k)
		}
	}
	l := s.commits[key]
	if l == nil {
		l = &recentList{}
		s.commits[key] = l
	}
	l.used++
	s.mu.Unlock()
	l.mu.Lock()
	return l
}

func (s *Store) unlockCommit(l *recentList) {
	l.mu.Unlock()
	s.mu.Lock()
	l.used--
	l.at = time.Now()
	s.mu.Unlock()
}

func listDigest(ids []string) string {
	sum := sha256.Sum256([]byte(strings.Join(ids, "\n")))
	return hex.EncodeToString(sum[:])
}
