package track

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
)

// Uploads in parts: the client is given a signed address for each part, sends the parts there at
// the same time and without its token, and then says which make the file. A part is a block of a
// blob; blocks that nobody commits are removed after a while.

// uploadLife is how long the addresses of the parts are good.
const uploadLife = 12 * time.Hour

// A part has an address of its own.
type partView struct {
	URL     string            `json:"url"`
	Part    int64             `json:"part_number"`
	Headers map[string]string `json:"headers"`
}

// partID is the id of a part's block, in the form in which addresses have it.
func partID(upload string, n int64) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s-%06d", upload, n))
}

// uploadTo is the file of an upload in parts. The address names its folder, the body its name, of
// which some clients send a whole local path.
func (c *call) uploadTo() (file, string, error) {
	name := c.need("path")
	if err := c.done(); err != nil {
		return file{}, "", err
	}
	folder, err := c.rawPath()
	if err != nil {
		return file{}, "", err
	}
	base := name[strings.LastIndexAny(name, `/\\`)+1:]
	p, err := safePath(folder + "/" + base)
	if err != nil {
		return file{}, "", err
	}
	f, err := c.fileFor(p)
	if err != nil {
		return file{}, "", err
	}
	if path.Base(p) != base || f.isFolder() {
		return file{}, "", errPath
	}
	if err := c.mayFile(f, true); err != nil {
		return file{}, "", err
	}
	return f, p, c.mayEmpty(f) // a name that is above files of others
}

func createUpload(c *call) (any, error) {
	if c.s.Sign == nil {
		return nil, refuse(notImplemented, "Multipart uploads are not supported here; upload the whole file")
	}
	parts := c.int("num_parts", 0)
	f, _, err := c.uploadTo()
	if err != nil {
		return nil, err
	}
	if err := c.mayStore(); err != nil {
		return nil, err
	}
	if parts < 1 || parts > blob.MaxBlocks {
		return nil, invalid("Invalid value %d for parameter 'num_parts' supplied: a file has 1 to %d parts", parts, blob.MaxBlocks)
	}
	upload := newID()
	to, err := c.address(f, signBlocks, uploadLife)
	if err != nil {
		return nil, err
	}
	signed, out := c.s.Sign(to), c.listWriter("credentials")
	for n := range parts {
		part := partView{URL: signed + "&comp=block&blockid=" + url.QueryEscape(partID(upload, n+1)), Part: n + 1, Headers: map[string]string{}}
		if err := out.add(part); err != nil {
			return nil, err
		}
	}
	return nil, out.end(map[string]string{"upload_id": upload})
}

func completeUpload(c *call) (any, error) {
	upload := c.need("upload_id")
	var parts []int64
	for _, m := range c.items("parts") {
		part := params{m: m}
		parts = append(parts, part.int("part_number", 0))
		if part.err != nil {
			c.fail(part.err)
		}
	}
	f, p, err := c.uploadTo()
	if err != nil {
		return nil, err
	}
	if err := c.mayStore(); err != nil {
		return nil, err
	}
	if len(parts) == 0 {
		return nil, required("parts")
	}
	slices.Sort(parts)
	ids := make([]string, len(parts))
	for i, n := range parts {
		if n != int64(i+1) {
			return nil, invalid("The upload must have parts 1 to %d; part %d is missing or repeated", len(parts), i+1)
		}
		ids[i] = partID(upload, n)
	}
	_, err = c.s.Blobs.CommitBlocks(c.ctx, f.container, f.name, ids, blob.PutOptions{ContentType: typeOf(p)})
	if berth.CodeOf(err) == berth.Invalid {
		return nil, invalid("The upload cannot be completed: %v", err)
	}
	return empty, err
}

// abortUpload leaves the parts to the collection of garbage.
func abortUpload(c *call) (any, error) {
	c.need("upload_id")
	_, _, err := c.uploadTo()
	return empty, err
}
