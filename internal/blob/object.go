package blob

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// small is the content that is hashed in memory, so that a known one costs no file. It is the copy
// buffer of larger ones.
const small = 256 << 10

var buffers = sync.Pool{New: func() any { return new([small]byte) }}

// settled is the age at which an object is on the disk to stay, whichever process put it there.
const settled = 2 * time.Minute

func (s *Store) object(hash string) string {
	return filepath.Join(s.dir, "objects", hash[:2], hash[2:])
}

func (s *Store) trash(hash string) string { return filepath.Join(s.dir, "trash", hash) }

// pin keeps the object of hash, once there, from being collected until the function returned is
// called.
func (s *Store) pin(hash string) (unpin func()) {
	s.mu.Lock()
	s.pins[hash]++
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.pins[hash]--; s.pins[hash] == 0 {
			delete(s.pins, hash)
		}
	}
}

// have reports whether the object of a pinned hash is there, durably, and makes it young.
func (s *Store) have(hash string, size int64) (bool, error) {
	p := s.object(hash)
	info, err := os.Stat(p)
	if err != nil || info.Size() != size { // another size is damage: the content in hand replaces it
		return false, ignoreMissing(err)
	}
	t := time.Now()
	if err := os.Chtimes(p, t, t); err != nil {
		return false, ignoreMissing(err)
	}
	if t.Sub(info.ModTime()) < settled { // its writer may not have made the name durable yet
		return true, syncDir(filepath.Dir(p))
	}
	return true, nil
}

// A temp is a file being written. Its owner calls discard in the end, placed or not.
type temp struct {
	*os.File
	s *Store
}

func (s *Store) newTemp() (*temp, error) {
	// It is in use before it exists, or GC could take it in between.
	name := tempName()
	s.useTemp(name)
	f, err := os.OpenFile(filepath.Join(s.dir, "tmp", name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		s.forgetTemp(name)
		return nil, err
	}
	return &temp{f, s}, nil
}

func tempName() string { return fmt.Sprintf("up-%016x%016x", rand.Uint64(), rand.Uint64()) }

func (s *Store) useTemp(name string) {
	s.mu.Lock()
	s.temps[name] = struct{}{}
	s.mu.Unlock()
}

func (s *Store) forgetTemp(name string) {
	s.mu.Lock()
	delete(s.temps, name)
	s.mu.Unlock()
}

func (t *temp) discard() {
	t.Close()           // what matters was synced
	os.Remove(t.Name()) // GC takes what is left
	t.s.forgetTemp(filepath.Base(t.Name()))
}

// place makes the file the object of hash, durably.
func (t *temp) place(hash string) error {
	if err := t.Sync(); err != nil {
		return err
	}
	p := t.s.object(hash)
	if err := os.Rename(t.Name(), p); err != nil {
		return err
	}
	return syncDir(filepath.Dir(p))
}

// content is what was found out about bytes while they passed.
type content struct {
	size int64
	hash string // sha256, hex
	md5  []byte // nil when it was not computed
}

// absorb turns r into an object, and returns with its hash pinned. wantMD5 asks for the MD5 of
// large content too; check may refuse what arrived before it is kept.
func (s *Store) absorb(ctx context.Context, r io.Reader, wantMD5 bool, check func(content) error) (content, func(), error) {
	buf := buffers.Get().(*[small]byte)
	defer buffers.Put(buf)
	n, err := fill(r, buf[:])
	if err == io.EOF {
		return s.absorbSmall(buf[:n], check)
	}
	if err != nil {
		return content{}, nil, readError(err)
	}
	t, err := s.newTemp()
	if err != nil {
		return content{}, nil, s.diskError("starting an upload", err)
	}
	defer t.discard()
	sum := newSums(wantMD5)
	var size, kicked int64
	for end := false; !end; {
		sum.add(buf[:n])
		if _, err := t.Write(buf[:n]); err != nil {
			return content{}, nil, s.diskError("keeping an upload", err)
		}
		if size += int64(n); size-kicked >= writebackStep {
			writeback(t.File, kicked, size-kicked)
			kicked = size
		}
		if err := ctx.Err(); err != nil {
			return content{}, nil, err
		}
		if n, err = fill(r, buf[:]); err == io.EOF {
			end = n == 0
		} else if err != nil {
			return content{}, nil, readError(err)
		}
	}
	c := sum.content(size)
	unpin, err := s.keep(t, c, check)
	return c, unpin, err
}

func (s *Store) absorbSmall(data []byte, check func(content) error) (content, func(), error) {
	sum := newSums(true)
	sum.add(data)
	c := sum.content(int64(len(data)))
	if err := check(c); err != nil {
		return content{}, nil, err
	}
	unpin := s.pin(c.hash)
	err := func() error {
		if ok, err := s.have(c.hash, c.size); ok || err != nil {
			return err
		}
		t, err := s.newTemp()
		if err != nil {
			return err
		}
		defer t.discard()
		if _, err := t.Write(data); err != nil {
			return err
		}
		return t.place(c.hash)
	}()
	if err != nil {
		unpin()
		return content{}, nil, s.diskError("keeping an upload", err)
	}
	return c, unpin, nil
}

// keep makes a written temp file an object, unless the object is there already, and returns with
// its hash pinned.
func (s *Store) keep(t *temp, c content, check func(content) error) (unpin func(), err error) {
	if err := check(c); err != nil {
		return nil, err
	}
	unpin = s.pin(c.hash)
	ok, err := s.have(c.hash, c.size)
	if err == nil && !ok {
		err = t.place(c.hash)
	}
	if err != nil {
		unpin()
		return nil, s.diskError("keeping an upload", err)
	}
	return unpin, nil
}

// sums hashes bytes as they pass.
type sums struct {
	sha hash.Hash
	md5 hash.Hash // nil when not wanted
}

func newSums(wantMD5 bool) *sums {
	s := &sums{sha: sha256.New()}
	if wantMD5 {
		s.md5 = md5.New()
	}
	return s
}

// add takes bytes in; sums of bytes do not fail.
func (s *sums) add(b []byte) { _, _ = s.Write(b) }

func (s *sums) Write(b []byte) (int, error) {
	s.sha.Write(b)
	if s.md5 != nil {
		s.md5.Write(b)
	}
	return len(b), nil
}

func (s *sums) content(size int64) content {
	c := content{size: size, hash: hex.EncodeToString(s.sha.Sum(nil))}
	if s.md5 != nil {
		c.md5 = s.md5.Sum(nil)
	}
	return c
}

// fill reads until buf is full or r ends. Unlike io.ReadFull it passes on the reader's own error,
// so that content that ended is told from content that was cut.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var k int
		k, err = r.Read(buf[n:])
		n += k
	}
	if n == len(buf) && err == io.EOF {
		err = nil // the next call says so again
	}
	return n, err
}

func readError(err error) error {
	var coded *berth.Error
	if errors.As(err, &coded) {
		return err
	}
	return fmt.Errorf("reading the content: %w", err)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
