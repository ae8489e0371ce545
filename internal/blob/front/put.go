package front

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/pace"
)

func (c *call) put() error {
	hd := c.r.Header
	if t := hd.Get("x-ms-blob-type"); t != "" && !strings.EqualFold(t, "BlockBlob") {
		return coded(berth.Unsupported, "InvalidBlobType", "only block blobs are supported by this server")
	}
	if hd.Get("x-ms-copy-source") != "" {
		return coded(berth.Unsupported, "UnsupportedHeader", "copying from a URL is not supported by this server")
	}
	o, err := c.options()
	if err != nil {
		return err
	}
	if o.ContentType == "" {
		o.ContentType = hd.Get("Content-Type")
	}
	if o.MD5, err = digest(hd, "x-ms-blob-content-md5", "Content-MD5"); err != nil {
		return err
	}
	o.Size = max(c.r.ContentLength, 0)
	b, err := c.h.store.Put(c.r.Context(), c.container, c.name, c.body(), o)
	if err != nil {
		return err
	}
	if b.ContentMD5 != "" {
		c.w.Header().Set("Content-MD5", b.ContentMD5)
	}
	c.tag(b)
	c.w.WriteHeader(http.StatusCreated)
	return nil
}

// RestHeader says, of a block, how many bytes of the blob are to come with it and after it.
const RestHeader = "X-Berth-Rest"

func (c *call) putBlock() error {
	id, err := blockID(c.query.Get("blockid"))
	if err != nil {
		return err
	}
	if err := c.plainBody(); err != nil {
		return err
	}
	o := blob.PutOptions{Size: max(c.r.ContentLength, 0)}
	if o.MD5, err = digest(c.r.Header, "Content-MD5"); err != nil {
		return err
	}
	// An upload that does not fit is refused before it has filled the disk.
	if rest, err := strconv.ParseInt(c.r.Header.Get(RestHeader), 10, 64); err == nil {
		if err := c.h.store.Room(rest); err != nil {
			return err
		}
	}
	if err := c.h.store.PutBlockChecked(c.r.Context(), c.container, c.name, id, c.body(), o); err != nil {
		return err
	}
	if len(o.MD5) > 0 {
		c.w.Header().Set("Content-MD5", base64.StdEncoding.EncodeToString(o.MD5))
	}
	c.w.WriteHeader(http.StatusCreated)
	return nil
}

func (c *call) commit() error {
	o, err := c.options()
	if err != nil {
		return err
	}
	if o.MD5, err = digest(c.r.Header, "x-ms-blob-content-md5"); err != nil {
		return err
	}
	ids, err := parseBlockList(http.MaxBytesReader(c.w, pace.Limit(c.w, c.r, pace.Document).Body, maxBlockList))
	if err != nil {
		return err
	}
	if err := c.recheckEnd(0); err != nil {
		return err
	}
	// Committing gigabytes takes longer than some clients wait. They ask again, and must find it
	// done by then.
	ctx := context.WithoutCancel(c.r.Context())
	b, err := c.h.store.CommitBlocks(ctx, c.container, c.name, ids, o)
	if err != nil {
		return err
	}
	c.tag(b)
	c.w.WriteHeader(http.StatusCreated)
	return nil
}

func (c *call) setMetadata() error {
	o, err := c.options()
	if err != nil {
		return err
	}
	if o.IfNoneMatch {
		return coded(berth.Invalid, "UnsupportedHeader", "If-None-Match is not supported for this operation")
	}
	b, err := c.h.store.SetMeta(c.r.Context(), c.container, c.name, o.Meta, o.IfMatch)
	if err != nil {
		return err
	}
	c.tag(b)
	c.w.WriteHeader(http.StatusOK)
	return nil
}

func (c *call) delete() error {
	o, err := c.options()
	if err != nil {
		return err
	}
	if err := c.h.store.DeleteMatch(c.r.Context(), c.container, c.name, o.IfMatch); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusAccepted)
	return nil
}

// options reads the headers that all writes share. A condition that cannot be kept is refused, not
// ignored.
func (c *call) options() (blob.PutOptions, error) {
	hd := c.r.Header
	o := blob.PutOptions{ContentType: hd.Get("x-ms-blob-content-type"), SHA256: hd.Get(berth.ContentHashHeader), Meta: metadata(hd)}
	if err := c.plainBody(); err != nil {
		return o, err
	}
	switch tag := hd.Get("If-None-Match"); {
	case bareTag(tag) == "*":
		o.IfNoneMatch = true
	case tag != "":
		return o, coded(berth.Unsupported, "UnsupportedHeader", "If-None-Match must be * in a write")
	}
	switch tag := hd.Get("If-Match"); {
	case strings.Contains(tag, ","):
		return o, coded(berth.Unsupported, "UnsupportedHeader", "If-Match must name one version in a write")
	case tag != "":
		o.IfMatch = bareTag(tag)
	}
	for _, h := range []string{"If-Modified-Since", "If-Unmodified-Since", "x-ms-if-tags"} {
		if hd.Get(h) != "" {
			return o, coded(berth.Unsupported, "UnsupportedHeader", h+" is not supported by this server in a write: use If-Match")
		}
	}
	return o, nil
}

// plainBody refuses bodies in the framed form, whose bytes are not the blob's.
func (c *call) plainBody() error {
	if c.r.Header.Get("x-ms-structured-body") != "" {
		return coded(berth.Unsupported, "UnsupportedHeader", "structured bodies are not supported by this server; send the plain content")
	}
	return nil
}

// metadata takes the x-ms-meta- headers. Their case is lost on the way in; lower case is what
// clients use.
func metadata(hd http.Header) map[string]string {
	var meta map[string]string
	for k, v := range hd {
		if name, ok := strings.CutPrefix(strings.ToLower(k), "x-ms-meta-"); ok {
			if meta == nil {
				meta = map[string]string{}
			}
			meta[name] = strings.Join(v, ",")
		}
	}
	return meta
}

// digest is the MD5 in the first of the headers that is set.
func digest(hd http.Header, names ...string) ([]byte, error) {
	for _, n := range names {
		if text := hd.Get(n); text != "" {
			sum, err := base64.StdEncoding.DecodeString(text)
			if err != nil || len(sum) != 16 {
				return nil, coded(berth.Invalid, "InvalidMd5", n+" is not the base64 of an MD5")
			}
			return sum, nil
		}
	}
	return nil, nil
}

// blockID checks a block's id: the base64 of up to 64 bytes.
func blockID(text string) (string, error) {
	text = strings.ReplaceAll(text, " ", "+") // a plus sign that was not escaped
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) == 0 || len(raw) > 64 {
		return "", coded(berth.Invalid, "InvalidQueryParameterValue", "blockid is not the base64 of 1 to 64 bytes")
	}
	return text, nil
}

// body says of an upload that was cut that it was the upload.
type body struct {
	r       io.Reader
	partway func(n int64) error // asked after each checkEach bytes
	atEnd   func(n int64) error // asked at the end
	n       int64               // read
	next    int64               // when partway is asked
}

// checkEach is after how many bytes of an upload it is checked again: a signature that was made for
// a task ends with it, and the workspace may be full.
const checkEach = 64 << 20

func (c *call) body() *body {
	return &body{r: c.r.Body, partway: c.recheckRoom, atEnd: c.recheckEnd, next: checkEach}
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.n += int64(n); b.n >= b.next && err == nil {
		b.next = b.n + checkEach
		if err := b.partway(b.n); err != nil {
			return n, err
		}
	}
	if err == io.EOF {
		if err := b.atEnd(b.n); err != nil {
			return n, err
		}
	}
	if err != nil && err != io.EOF {
		err = &berth.Error{Code: berth.Invalid, Wire: "IncompleteBody", Msg: "the upload ended early", Err: err}
	}
	return n, err
}
