package blob

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// PutOptions say what is known of a blob's content and under which condition it is written.
type PutOptions struct {
	ContentType string
	// MD5 and SHA256 (hex) are of the whole content, which is refused when it differs. CommitBlocks
	// records MD5 unchecked, as Azure does.
	MD5    []byte
	SHA256 string
	Meta   map[string]string
	// IfNoneMatch refuses to replace a blob; IfMatch replaces only the version with this ETag.
	IfNoneMatch bool
	IfMatch     string
	// Size is how many bytes will come, 0 when that is not known. Another number of bytes is
	// refused.
	Size int64
}

// Put keeps the bytes of r under a name. Either the whole content is there under that name when it
// returns, durably, or nothing has changed. Errors: Conflict (IfNoneMatch), Precondition (IfMatch),
// Invalid (names, metadata, checks), Unavailable (the disk is full), and whatever r fails with.
func (s *Store) Put(ctx context.Context, container, name string, r io.Reader, o PutOptions) (*store.Blob, error) {
	if err := s.admit(ctx, container, name, o); err != nil {
		return nil, err
	}
	c, unpin, err := s.absorb(ctx, r, len(o.MD5) > 0, o.check)
	if err != nil {
		return nil, err
	}
	defer unpin()
	return s.index(ctx, container, name, c, o)
}

// SetMeta replaces a blob's metadata. ifMatch, when not empty, is the ETag the blob must have.
func (s *Store) SetMeta(ctx context.Context, container, name string, meta map[string]string, ifMatch string) (*store.Blob, error) {
	if err := checkNames(container, name); err != nil {
		return nil, err
	}
	if err := checkMeta(meta); err != nil {
		return nil, err
	}
	tag, at := newETag(), now()
	var b *store.Blob
	err := s.db.Update(ctx, func(tx *store.Tx) (err error) {
		if b, err = s.get(tx, container, name); err != nil {
			return err
		}
		if !s.matches(b, ifMatch) {
			return notMatched(container, name)
		}
		// Who uploads what is there already says so in its metadata too, and is not refused; there
		// is nothing to say.
		r, err := restrained(tx, container, name, writer(ctx))
		if err != nil || r.refuse(b) != nil {
			return err
		}
		if err := changed(tx, container, r.named); err != nil { // a blob may become the mark of a folder
			return err
		}
		b.Meta, b.ETag, b.Modified = maps.Clone(meta), tag, at
		return tx.PutBlob(b)
	})
	if err != nil {
		return nil, err
	}
	return s.current(b), nil
}

// Delete forgets a blob, and removes the file of a live one. Its object goes with the next GC that
// finds no other name.
func (s *Store) Delete(ctx context.Context, container, name string) error {
	return s.DeleteMatch(ctx, container, name, "")
}

// DeleteMatch is Delete for the version with this ETag only.
func (s *Store) DeleteMatch(ctx context.Context, container, name, ifMatch string) error {
	if err := checkNames(container, name); err != nil {
		return err
	}
	var b *store.Blob
	err := s.db.Update(ctx, func(tx *store.Tx) (err error) {
		if b, err = s.get(tx, container, name); err != nil {
			return err
		}
		if !s.matches(b, ifMatch) {
			return notMatched(container, name)
		}
		r, err := restrained(tx, container, name, writer(ctx))
		if err := cmp.Or(err, r.refuse(b)); err != nil {
			return err
		}
		if err := changed(tx, container, r.named); err != nil {
			return err
		}
		return tx.DeleteBlob(container, name)
	})
	if err == nil && b.Live != "" {
		err = ignoreMissing(s.root.Remove(b.Live))
	}
	return err
}

// admit refuses a write that cannot succeed before its content is read.
func (s *Store) admit(ctx context.Context, container, name string, o PutOptions) error {
	if err := checkNames(container, name); err != nil {
		return err
	}
	if err := checkMeta(o.Meta); err != nil {
		return err
	}
	if err := s.room(o.Size); err != nil {
		return err
	}
	if !o.IfNoneMatch && o.IfMatch == "" {
		return nil
	}
	return s.db.View(ctx, func(tx *store.Tx) error { return s.allowed(tx, container, name, o) })
}

// tight is so little room that nothing useful can be written any more.
const tight = 64 << 10

// Full is an error when the disk of this store has no room left, nil when it has some or that
// cannot be told.
func (s *Store) Full() error {
	if left := free(s.dir); left < 0 || left >= tight {
		return nil
	}
	return &berth.Error{
		Code: berth.Unavailable, Wire: "InsufficientStorage",
		Msg: "the disk that holds " + s.dir + " is full: free some space, nothing was lost",
	}
}

// Room refuses an upload of this size where the disk has no room for it.
func (s *Store) Room(size int64) error { return s.room(size) }

func (s *Store) room(size int64) error {
	if size <= small {
		return nil
	}
	if left := free(s.dir); left >= 0 && left < size {
		return &berth.Error{
			Code: berth.Unavailable, Wire: "InsufficientStorage",
			Msg: fmt.Sprintf("the disk that holds %s has no room for this upload of %d bytes; free some space and try again", s.dir, size),
		}
	}
	return nil
}

func (s *Store) allowed(tx *store.Tx, container, name string, o PutOptions) error {
	old, err := tx.Blob(container, name)
	switch {
	case berth.CodeOf(err) == berth.NotFound && o.IfMatch != "":
		return notMatched(container, name)
	case berth.CodeOf(err) == berth.NotFound:
		return nil
	case err != nil:
		return err
	case o.IfNoneMatch:
		return exists(container, name)
	case !s.matches(old, o.IfMatch):
		return notMatched(container, name)
	}
	return nil
}

// matches compares a stored blob with an ETag asked for; "" and "*" take any.
func (s *Store) matches(b *store.Blob, etag string) bool {
	return etag == "" || etag == "*" || s.current(b).ETag == etag
}

// index gives content that is in place its name, and forgets what its writer staged for that name.
func (s *Store) index(ctx context.Context, container, name string, c content, o PutOptions) (*store.Blob, error) {
	at := now()
	b := &store.Blob{
		Container: container, Name: name, Size: c.size, Hash: c.hash,
		ContentType: o.ContentType, Meta: maps.Clone(o.Meta), ETag: newETag(), Created: at, Modified: at, Writer: writer(ctx),
	}
	if b.ContentType == "" {
		b.ContentType = "application/octet-stream"
	}
	if c.md5 != nil {
		b.ContentMD5 = base64.StdEncoding.EncodeToString(c.md5)
	}
	kept := b
	err := s.name(ctx, []content{c}, func(tx *store.Tx) error {
		if err := s.allowed(tx, container, name, o); err != nil {
			return err
		}
		same, err := alreadyThere(tx, container, name, writer(ctx), c.hash)
		if same != nil || err != nil {
			kept = same
			return err
		}
		kept = b
		return tx.PutBlob(b)
	})
	if err != nil {
		return nil, err
	}
	s.dropBlocks(stageKey(ctx, container, name)) //nolint:errcheck // GC takes what is left
	return kept, nil
}

func (o PutOptions) check(c content) error {
	switch {
	case o.Size > 0 && c.size != o.Size:
		return berth.Errorf(berth.Invalid, "expected %d bytes, received %d", o.Size, c.size)
	case o.SHA256 != "" && !strings.EqualFold(o.SHA256, c.hash):
		return &berth.Error{
			Code: berth.Invalid, Wire: berth.WireSHA256Mismatch,
			Msg: fmt.Sprintf("the content's SHA-256 is %s, not %s", c.hash, quote(o.SHA256)),
		}
	case len(o.MD5) > 0 && c.md5 != nil && !bytes.Equal(o.MD5, c.md5):
		return &berth.Error{Code: berth.Invalid, Wire: "Md5Mismatch", Msg: "the MD5 given does not match the content"}
	}
	return nil
}
