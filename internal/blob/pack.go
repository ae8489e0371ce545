package blob

import (
	"context"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// MaxPacked is how large a file may be that comes with others in one request.
const MaxPacked = small

// atOnce is how many names are given in one transaction, which keeps others waiting, and
// partsAtOnce how many parts these names may have: every folder above a name is looked at.
const (
	atOnce      = 128
	partsAtOnce = 8 * atOnce
)

// chunk is how many of the first of n names are given in one transaction.
func chunk(n int, name func(i int) string) int {
	n = min(n, atOnce)
	parts := 0
	for i := range n {
		if parts += strings.Count(name(i), "/") + 1; i > 0 && parts > partsAtOnce {
			return i
		}
	}
	return n
}

// A Spool is a file that is deleted when it is closed.
type Spool struct{ *temp }

func (s Spool) Close() error {
	s.discard()
	return nil
}

// Spool keeps all of r on the disk, to be read from its beginning: what is slow to come takes no
// memory meanwhile.
func (s *Store) Spool(r io.Reader) (Spool, error) {
	t, err := s.newTemp()
	if err == nil {
		if _, err = io.Copy(t, r); err == nil {
			_, err = t.Seek(0, io.SeekStart)
		}
		if err != nil {
			t.discard()
		}
	}
	return Spool{t}, s.diskError("keeping an upload", err)
}

// Packed is one of many files to keep.
type Packed struct {
	Name string
	Data []byte
}

// PutMany keeps many small files. All of them are there, durably, when it returns, for two syncs of
// the disk and a few transactions. After an error some may be there.
func (s *Store) PutMany(ctx context.Context, container string, files []Packed) error {
	var total int64
	for i := range files {
		if err := checkNames(container, files[i].Name); err != nil {
			return err
		}
		if len(files[i].Data) > MaxPacked {
			return berth.Errorf(berth.Invalid, "blob %s has %d bytes; blobs larger than %d must be uploaded individually", quote(files[i].Name), len(files[i].Data), MaxPacked)
		}
		total += int64(len(files[i].Data))
	}
	if err := s.room(total); err != nil {
		return err
	}
	contents := make([]content, len(files))
	for i := range files {
		sum := newSums(true)
		sum.add(files[i].Data)
		contents[i] = sum.content(int64(len(files[i].Data)))
		defer s.pin(contents[i].hash)()
	}
	if err := s.placeMany(files, contents); err != nil {
		return s.diskError("keeping an upload", err)
	}
	for at := 0; at < len(files); {
		end := at + chunk(len(files)-at, func(i int) string { return files[at+i].Name })
		if err := s.indexMany(ctx, container, files[at:end], contents[at:end]); err != nil {
			return err
		}
		at = end
	}
	return ctx.Err()
}

// placeMany makes objects of contents: first all bytes are on the disk, then all names.
func (s *Store) placeMany(files []Packed, contents []content) error {
	temps := map[string]*temp{} // by hash
	defer func() {
		for _, t := range temps {
			t.discard()
		}
	}()
	for i, c := range contents {
		if temps[c.hash] != nil {
			continue
		}
		ok, err := s.have(c.hash, c.size)
		if err != nil {
			return err
		}
		if ok {
			continue
		}
		t, err := s.newTemp()
		if err != nil {
			return err
		}
		temps[c.hash] = t
		if _, err := t.Write(files[i].Data); err != nil {
			return err
		}
	}
	if len(temps) == 0 {
		return nil
	}
	if err := syncMany(filepath.Join(s.dir, "tmp"), temps); err != nil {
		return err
	}
	dirs := map[string]bool{}
	for hash, t := range temps {
		p := s.object(hash)
		if err := os.Rename(t.Name(), p); err != nil {
			return err
		}
		dirs[filepath.Dir(p)] = true
	}
	return syncDirs(s.dir, dirs)
}

// indexMany gives contents that are in place their names.
func (s *Store) indexMany(ctx context.Context, container string, files []Packed, contents []content) error {
	at := now()
	return s.name(ctx, contents, func(tx *store.Tx) error {
		for i := range files {
			c, name := contents[i], files[i].Name
			same, err := alreadyThere(tx, container, name, writer(ctx), c.hash)
			if err != nil {
				return err
			}
			if same != nil {
				continue
			}
			err = tx.PutBlob(&store.Blob{
				Container: container, Name: name, Size: c.size, Hash: c.hash, ContentType: "application/octet-stream", ETag: newETag(),
				ContentMD5: base64.StdEncoding.EncodeToString(c.md5), Created: at, Modified: at, Writer: writer(ctx),
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
