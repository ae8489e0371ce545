package client

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/berthml/berth"
)

// reuseFiles is how many files one request names.
const reuseFiles = 5000

// fromHeader has the address of the folder that files are reused from.
const fromHeader = "X-Berth-From"

// reuse has the server take files from folders of earlier uploads, and returns those that have to
// be sent. It only saves time: what cannot be reused, for whatever reason, is sent.
func (c *Client) reuse(ctx context.Context, to *folder, u *Upload, count func(int64)) []File {
	left := u.Files
	if u.Single {
		return left
	}
	for _, from := range u.Before {
		if from == to.url {
			continue
		}
		left = c.reuseFrom(ctx, to, from, left, count)
	}
	return left
}

func (c *Client) reuseFrom(ctx context.Context, to *folder, from string, files []File, count func(int64)) (left []File) {
	for len(files) > 0 {
		var t berth.Tree
		var asked []File
		text, n := t.AppendHead(nil), 0
		for n < len(files) && len(asked) < reuseFiles {
			f := files[n]
			n++
			if f.Hash == "" || !berth.TreePath(f.Name) {
				left = append(left, f)
				continue
			}
			x := berth.TreeFile{Path: f.Name, Size: f.Size, Mode: 0o600, Hash: f.Hash}
			text, asked = x.AppendFile(text), append(asked, f)
		}
		files = files[n:]
		if len(asked) == 0 {
			continue
		}
		missing, err := c.askReuse(ctx, to, from, string(t.AppendEnd(text, len(asked))))
		if err != nil {
			return append(append(left, asked...), files...)
		}
		for _, f := range asked {
			if missing[f.Name] {
				left = append(left, f)
			} else {
				count(f.Size)
			}
		}
	}
	return left
}

// askReuse sends one request, and returns the names of the files that have to be sent.
func (c *Client) askReuse(ctx context.Context, to *folder, from, manifest string) (map[string]bool, error) {
	req, err := c.blobRequest(ctx, http.MethodPut, withQuery(to.at(""), "comp=reuse"))
	if err != nil {
		return nil, err
	}
	req.Header.Set(fromHeader, from)
	req.ContentLength = int64(len(manifest))
	req.Body = io.NopCloser(strings.NewReader(manifest))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(manifest)), nil }
	resp, err := c.blob(req, http.StatusOK)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, c.lost(err)
	}
	missing := map[string]bool{}
	for name := range strings.SplitSeq(string(text), "\x00") {
		missing[name] = true
	}
	return missing, nil
}
