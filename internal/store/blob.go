package store

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berthml/berth"
)

// Blob is a row of the blob index: a name in a container that points to content.
type Blob struct {
	Container, Name   string
	Size              int64
	Hash              string // sha256 of the content in the content store, in hex; "" for a live one
	Live              string // path, relative to the home, of a file that still grows: logs
	ContentType       string
	ContentMD5        string
	Meta              map[string]string
	ETag              string
	Created, Modified time.Time
	Writer            string // the user who wrote it; "" where that is not known
}

const (
	blobColumns = "SELECT container, name, size, hash, live, content_type, content_md5, meta, etag, created, modified, writer FROM blobs"
	upsertBlob  = "INSERT INTO blobs (container, name, size, hash, live, content_type, content_md5, meta, etag, created, modified, writer)" +
		" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (container, name) DO UPDATE SET size = excluded.size," +
		" hash = excluded.hash, live = excluded.live, content_type = excluded.content_type, content_md5 = excluded.content_md5," +
		" meta = excluded.meta, etag = excluded.etag, created = excluded.created, modified = excluded.modified, writer = excluded.writer"
)

// Blob reads one row. A missing one is berth.NotFound.
func (tx *Tx) Blob(container, name string) (*Blob, error) {
	blobs, err := tx.blobs("", blobColumns+" WHERE container = ? AND name = ?", container, name)
	if err != nil {
		return nil, err
	}
	if len(blobs) == 0 {
		return nil, noBlob(container, name)
	}
	return blobs[0], nil
}

// PutBlob writes a row and replaces an existing one of that name. It sets Created and Modified if
// they are zero.
func (tx *Tx) PutBlob(b *Blob) error {
	meta := ""
	if len(b.Meta) > 0 {
		text, err := json.Marshal(b.Meta)
		if err != nil {
			return err
		}
		meta = string(text)
	}
	if b.Created.IsZero() {
		b.Created = tx.Now()
	}
	if b.Modified.IsZero() {
		b.Modified = tx.Now()
	}
	_, err := tx.exec(upsertBlob, b.Container, b.Name, b.Size, b.Hash, b.Live, b.ContentType, b.ContentMD5, meta, b.ETag,
		nanos(b.Created), nanos(b.Modified), b.Writer)
	return err
}

// DeleteBlob removes a row. A missing one is berth.NotFound.
func (tx *Tx) DeleteBlob(container, name string) error {
	n, err := tx.exec("DELETE FROM blobs WHERE container = ? AND name = ?", container, name)
	if err != nil {
		return err
	}
	if n == 0 {
		return noBlob(container, name)
	}
	return nil
}

// BlobQuery selects blobs of one container.
type BlobQuery struct {
	Container, Prefix string
	After             string // name after which to start
	Limit             int    // 0 is 1000
}

// ListBlobs reads a page of blobs in the order of the bytes of their names.
func (tx *Tx) ListBlobs(q BlobQuery) ([]*Blob, error) {
	text, args := blobColumns+" WHERE container = ?", []any{q.Container}
	if q.Prefix != "" {
		text += " AND name >= ?"
		args = append(args, q.Prefix)
		if end := prefixEnd(q.Prefix); end != "" {
			text += " AND name < ?"
			args = append(args, end)
		}
	}
	if q.After != "" {
		text += " AND name > ?"
		args = append(args, q.After)
	}
	if q.Limit <= 0 {
		q.Limit = 1000
	}
	return tx.blobs(q.Prefix, text+" ORDER BY name LIMIT ?", append(args, q.Limit)...)
}

// prefixEnd is the least text that is greater than all that begin with prefix, "" when there is
// none. It steps by runes, whose order is that of their bytes, because PostgreSQL takes no other
// text.
func prefixEnd(prefix string) string {
	for prefix != "" {
		r, n := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-n]
		switch {
		case r == utf8.RuneError && n == 1:
			return ""
		case r == 0xd7ff: // the next ones are not runes
			return prefix + "\ue000"
		case r < utf8.MaxRune:
			return prefix + string(r+1)
		}
	}
	return ""
}

// blobs runs a query of blobColumns until a name does not begin with prefix.
func (tx *Tx) blobs(prefix, text string, args ...any) ([]*Blob, error) {
	var blobs []*Blob
	err := tx.query(func(r row) (bool, error) {
		var b Blob
		var meta string
		var created, modified int64
		err := r.Scan(&b.Container, &b.Name, &b.Size, &b.Hash, &b.Live, &b.ContentType, &b.ContentMD5, &meta, &b.ETag, &created, &modified, &b.Writer)
		if err != nil || !strings.HasPrefix(b.Name, prefix) {
			return false, err
		}
		b.Created, b.Modified = fromNanos(created), fromNanos(modified)
		if meta != "" {
			if err := json.Unmarshal([]byte(meta), &b.Meta); err != nil {
				return false, err
			}
		}
		blobs = append(blobs, &b)
		return true, nil
	}, text, args...)
	if err != nil {
		return nil, err
	}
	return blobs, nil
}

// BlobHashes returns the distinct hashes that blobs point to, in order, after a given one. It is
// for the collection of content that nothing points to.
func (tx *Tx) BlobHashes(after string, limit int) ([]string, error) {
	var hashes []string
	err := tx.query(func(r row) (bool, error) {
		var h string
		err := r.Scan(&h)
		hashes = append(hashes, h)
		return true, err
	}, "SELECT DISTINCT hash FROM blobs WHERE hash <> '' AND hash > ? ORDER BY hash LIMIT ?", after, limit)
	if err != nil {
		return nil, err
	}
	return hashes, nil
}

// BlobHashUsed reports whether any blob points at the content.
func (tx *Tx) BlobHashUsed(hash string) (bool, error) {
	var one int
	return tx.row([]any{&one}, "SELECT 1 FROM blobs WHERE hash = ? AND hash <> '' LIMIT 1", hash)
}

// BlobBytes returns the total size of all blobs of a container. It reads every row of the
// container.
func (tx *Tx) BlobBytes(container string) (bytes int64, err error) {
	_, err = tx.row([]any{&bytes}, "SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM blobs WHERE container = ?", container)
	return bytes, err
}

func noBlob(container, name string) error {
	return berth.Errorf(berth.NotFound, "blob %s/%s does not exist", container, name)
}
