package front

import (
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/store"
)

// maxRangeMD5 is the longest range whose MD5 a client may ask for.
const maxRangeMD5 = 4 << 20

func (c *call) get() error {
	r, err := c.h.store.Open(c.r.Context(), c.container, c.name)
	if err != nil {
		return err
	}
	defer r.Close()
	b := r.Blob()
	if err := c.conditions(b); err != nil {
		return err
	}
	off, n, part, err := c.wantedRange(b)
	if err != nil {
		return err
	}
	sum, err := c.rangeMD5(r, off, n, part)
	if err != nil {
		return err
	}
	if err := c.describe(b); err != nil {
		return err
	}
	hd, status := c.w.Header(), http.StatusOK
	hd.Set("Content-Length", strconv.FormatInt(n, 10))
	if part {
		status = http.StatusPartialContent
		hd.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", off, off+n-1, b.Size))
		hd.Del("Content-MD5") // the whole blob's is not the part's
		if b.ContentMD5 != "" {
			hd.Set("x-ms-blob-content-md5", b.ContentMD5)
		}
		if sum != "" {
			hd.Set("Content-MD5", sum)
		}
	}
	c.w.WriteHeader(status)
	// Too few bytes, as of a log that was cut shorter, make the server break the connection: the
	// client sees that.
	r.CopyRange(c.w, off, n) //nolint:errcheck // the status is sent
	return nil
}

// rangeMD5 is the MD5 of a part where the client asks for it.
func (c *call) rangeMD5(r *blob.Reader, off, n int64, part bool) (string, error) {
	if !part || !strings.EqualFold(c.r.Header.Get("x-ms-range-get-content-md5"), "true") {
		return "", nil
	}
	if n > maxRangeMD5 {
		return "", coded(berth.Invalid, "OutOfRangeInput", "an MD5 can be requested for at most 4 MiB")
	}
	sum := md5.New()
	if _, err := io.Copy(sum, io.NewSectionReader(r, off, n)); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(sum.Sum(nil)), nil
}

func (c *call) properties() error {
	b, err := c.h.store.Stat(c.r.Context(), c.container, c.name)
	if err != nil {
		return err
	}
	if err := c.conditions(b); err != nil {
		return err
	}
	if err := c.describe(b); err != nil {
		return err
	}
	if c.query.Get("comp") == "" {
		c.w.Header().Set("Content-Length", strconv.FormatInt(b.Size, 10))
	}
	c.w.WriteHeader(http.StatusOK)
	return nil
}

// uploadMark is the metadata by which clients find that a folder was uploaded before, and upload
// nothing.
const uploadMark = "upload_status"

// describe sets a blob's properties and metadata. That somebody else uploaded a folder of the same
// name proves nothing about what is in it: a client that is not told so uploads its own, which has
// to be the same.
func (c *call) describe(b *store.Blob) error {
	hd := c.w.Header()
	marked := b.Meta[uploadMark] != ""
	if marked {
		owner, err := c.h.store.Owner(c.r.Context(), b.Container, b.Name)
		if err != nil {
			return err
		}
		marked = owner == "" || owner == c.user
	}
	c.tag(b)
	hd.Set("Accept-Ranges", "bytes")
	hd.Set("Content-Type", b.ContentType)
	hd.Set("x-ms-blob-type", "BlockBlob")
	hd.Set("x-ms-creation-time", b.Created.UTC().Format(http.TimeFormat))
	hd.Set("x-ms-lease-status", "unlocked")
	hd.Set("x-ms-lease-state", "available")
	if b.ContentMD5 != "" {
		hd.Set("Content-MD5", b.ContentMD5)
	}
	if b.Hash != "" {
		hd.Set(berth.ContentHashHeader, b.Hash)
	}
	for k, v := range b.Meta {
		if k != uploadMark || marked {
			hd["x-ms-meta-"+k] = []string{v} // not in canonical form: clients take the name from the wire as it is
		}
	}
	return nil
}

// tag sets what identifies a version.
func (c *call) tag(b *store.Blob) {
	c.w.Header().Set("ETag", `"`+b.ETag+`"`)
	c.w.Header().Set("Last-Modified", b.Modified.UTC().Format(http.TimeFormat))
}

// wantedRange is the part of the blob asked for, all of it when none is.
func (c *call) wantedRange(b *store.Blob) (off, n int64, part bool, err error) {
	text := c.r.Header.Get("x-ms-range")
	if text == "" {
		text = c.r.Header.Get("Range")
	}
	if tag := c.r.Header.Get("If-Range"); text == "" || tag != "" && !hasTag(tag, b) {
		return 0, b.Size, false, nil
	}
	off, n, ok, err := parseRange(text, b.Size)
	if err != nil {
		c.w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", b.Size))
		return 0, 0, false, err
	}
	if !ok {
		return 0, b.Size, false, nil
	}
	return off, n, true, nil
}

// conditions applies the conditional headers of a read.
func (c *call) conditions(b *store.Blob) error {
	hd := c.r.Header
	failed := coded(berth.Precondition, "ConditionNotMet", "the blob is not the requested version")
	unchanged := coded(berth.Precondition, "NotModified", "the blob has not changed")
	if tags := hd.Get("If-Match"); tags != "" {
		if !hasTag(tags, b) {
			return failed
		}
	} else if t, err := http.ParseTime(hd.Get("If-Unmodified-Since")); err == nil && b.Modified.Truncate(time.Second).After(t) {
		return failed
	}
	if tags := hd.Get("If-None-Match"); tags != "" {
		if sameTag(tags, b) {
			c.tag(b)
			return unchanged
		}
	} else if t, err := http.ParseTime(hd.Get("If-Modified-Since")); err == nil && !b.Modified.Truncate(time.Second).After(t) {
		c.tag(b)
		return unchanged
	}
	return nil
}

// hasTag reports whether the blob can stand for one of the versions in a header: it is that
// version, or a log that has only grown since. Clients fetch large blobs in parts that must match
// the first one's tag.
func hasTag(header string, b *store.Blob) bool {
	return sameTag(header, b) || anyTag(header, func(tag string) bool { return blob.SamePrefix(b, tag) })
}

func sameTag(header string, b *store.Blob) bool {
	return anyTag(header, func(tag string) bool { return tag == "*" || tag == b.ETag })
}

func anyTag(header string, is func(string) bool) bool {
	for tag := range strings.SplitSeq(header, ",") {
		if is(bareTag(tag)) {
			return true
		}
	}
	return false
}

// bareTag is a tag without its quotes; some clients send none.
func bareTag(tag string) string {
	return strings.Trim(strings.TrimPrefix(strings.TrimSpace(tag), "W/"), `"`)
}
