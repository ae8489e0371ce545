package data

import (
	"context"
	"io"
	"net/http"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
)

// maxManifest bounds what is taken for a manifest: a million files with long names.
const maxManifest = 512 << 20

// Manifest asks a server of ours what the folder at rawURL consists of, or the file there where one is wanted. It is berth.Unsupported
// where the server knows no manifests, or has none of this place.
func (c *Client) Manifest(ctx context.Context, rawURL string, file bool) (text []byte, err error) {
	u := addQuery(trimSlash(rawURL), "comp=tree")
	if file {
		u += "&type=file"
	}
	err = c.retry(ctx, func() error {
		res, err := c.do(ctx, http.MethodGet, u, nil, nil)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if text, err = io.ReadAll(io.LimitReader(res.Body, maxManifest)); err != nil {
			return berth.Errorf(berth.Unavailable, "reading the manifest: %w", err)
		}
		_, err = berth.ParseTree(text)
		return err
	})
	if berth.CodeOf(err) == berth.NotFound {
		return nil, berth.Errorf(berth.NotFound, "there is nothing at %s", Clean(rawURL))
	}
	return text, describe("asking what is in", rawURL, err)
}

// Contents brings files of the tree at rawURL, those in want, each to the path that to gives.
func (c *Client) Contents(ctx context.Context, rawURL string, t *berth.Tree, want []int, to func(i int) string) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(c.parallel)
	for _, i := range want {
		f := &t.Files[i]
		u := trimSlash(rawURL)
		if !t.Single {
			u = Join(u, f.Path)
		}
		g.Go(func() error { return c.fetchTo(gctx, u, to(i), f.Size) })
	}
	return describe("fetching", rawURL, g.Wait())
}

// fetchTo brings one file to a path of ours.
func (c *Client) fetchTo(ctx context.Context, u, path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if size > c.whole {
		err = c.pieces(ctx, u, f, size)
	} else {
		_, err = c.stream(ctx, u, f, size)
	}
	if err != nil {
		return err
	}
	return f.Close()
}
