package front

import (
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/store"
)

// list answers List Blobs.
func (c *call) list() error {
	q := c.query
	o := blob.ListOptions{Prefix: c.prefix(), Delimiter: q.Get("delimiter")}
	after, err := base64.RawURLEncoding.DecodeString(q.Get("marker"))
	if err != nil {
		return coded(berth.Invalid, "InvalidQueryParameterValue", "marker was not issued by this server")
	}
	o.After = string(after)
	if text := q.Get("maxresults"); text != "" {
		n, ok := number(text)
		if !ok || n == 0 {
			return coded(berth.Invalid, "OutOfRangeQueryParameterValue", "maxresults must be an integer from 1 to 5000")
		}
		o.Limit = int(min(n, 5000))
	}
	blobs, prefixes, next, err := c.h.store.List(c.r.Context(), c.container, o)
	if err != nil {
		return err
	}
	x := c.document()
	x.raw(`<EnumerationResults ServiceEndpoint="`)
	x.text(c.endpoint())
	x.raw(`" ContainerName="`)
	x.text(strings.TrimSuffix(c.container+"/"+c.folder, "/"))
	x.raw(`">`)
	for _, p := range [][2]string{{"Prefix", "prefix"}, {"Marker", "marker"}, {"MaxResults", "maxresults"}, {"Delimiter", "delimiter"}} {
		if v := q.Get(p[1]); v != "" {
			x.leaf(p[0], v)
		}
	}
	x.open("Blobs")
	withMeta := strings.Contains(q.Get("include"), "metadata")
	for len(blobs)+len(prefixes) > 0 { // both are sorted, and so is the answer
		if len(blobs) == 0 || len(prefixes) > 0 && prefixes[0] < blobs[0].Name {
			if c.visible(prefixes[0]) {
				x.open("BlobPrefix")
				x.leaf("Name", strings.TrimPrefix(prefixes[0], c.folder))
				x.close("BlobPrefix")
			}
			prefixes = prefixes[1:]
			continue
		}
		if c.visible(blobs[0].Name) {
			x.blob(blobs[0], strings.TrimPrefix(blobs[0].Name, c.folder), withMeta)
		}
		blobs = blobs[1:]
	}
	x.close("Blobs")
	x.leaf("NextMarker", base64.RawURLEncoding.EncodeToString([]byte(next)))
	x.close("EnumerationResults")
	return x.w.Flush()
}

// visible hides what begins like the folder of a grant and does not lie in it: a listing's prefix
// ends anywhere.
func (c *call) visible(name string) bool { return c.grant == nil || c.grant.covers(name) }

func (d *document) blob(b *store.Blob, name string, withMeta bool) {
	d.open("Blob")
	d.leaf("Name", name)
	d.open("Properties")
	d.leaf("Creation-Time", b.Created.UTC().Format(http.TimeFormat))
	d.leaf("Last-Modified", b.Modified.UTC().Format(http.TimeFormat))
	d.leaf("Etag", b.ETag)
	d.leaf("Content-Length", strconv.FormatInt(b.Size, 10))
	d.leaf("Content-Type", b.ContentType)
	if b.ContentMD5 != "" {
		d.leaf("Content-MD5", b.ContentMD5)
	}
	d.leaf("BlobType", "BlockBlob")
	d.leaf("LeaseStatus", "unlocked")
	d.leaf("LeaseState", "available")
	d.close("Properties")
	if withMeta {
		d.open("Metadata")
		for _, k := range slices.Sorted(maps.Keys(b.Meta)) {
			d.leaf(k, b.Meta[k])
		}
		d.close("Metadata")
	}
	d.close("Blob")
}

// endpoint is the address of the account as the client wrote it.
func (c *call) endpoint() string {
	scheme := "http://"
	if c.r.TLS != nil {
		scheme = "https://"
	}
	if c.h.host != "" && strings.EqualFold(hostname(c.r.Host), c.h.host) {
		return scheme + c.r.Host + "/"
	}
	return scheme + c.r.Host + c.h.prefix + "/"
}
