package front

import (
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/pace"
)

// FromHeader has the address of the folder that files are reused from.
const FromHeader = "X-Berth-From"

// reuse gives files that the caller uploaded to another folder names in this one: those of the
// manifest in the body. The answer has the paths of those that have to be uploaded, each ended by a
// zero byte. It is ours: a folder that was changed a little is uploaded again and again.
func (c *call) reuse() error {
	from, err := c.folderAt(c.r.Header.Get(FromHeader))
	if err != nil {
		return err
	}
	c.r = pace.Limit(c.w, c.r, pace.Document)
	text, err := io.ReadAll(io.LimitReader(c.body(), maxPackBytes))
	if err != nil {
		return err
	}
	t, err := berth.ParseTree(text)
	if err != nil {
		return err
	}
	folder := strings.TrimRight(c.name, "/")
	names := make([]string, len(t.Files))
	for i := range t.Files {
		names[i] = folder + "/" + t.Files[i].Path
	}
	if err := c.mayWrite("w", names...); err != nil {
		return err
	}
	missing, err := c.h.store.Reuse(c.r.Context(), c.container, folder, from, t)
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "application/octet-stream")
	for _, p := range missing {
		_, _ = io.WriteString(c.w, p+"\x00") // a client that is gone uploads them all
	}
	return nil
}

// folderAt is the name of a folder in the container of the request, by its address.
func (c *call) folderAt(address string) (string, error) {
	u, err := url.Parse(address)
	if err == nil && address != "" {
		if rest, ok := c.h.rest(&http.Request{URL: u, Host: u.Host}); ok {
			if container, name, err := parsePath(rest); err == nil && container == c.container && name != "" {
				return name, nil
			}
		}
	}
	return "", coded(berth.Invalid, "InvalidHeaderValue", FromHeader+" must be the address of a folder in the same container")
}
