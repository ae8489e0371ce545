package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
)

// maxManifest bounds what is taken for a manifest: a million files with long names.
const maxManifest = 512 << 20

// Manifest asks a server of ours what the folder at rawURL consists of, or the file there where one
// is wanted. It is berth.Unsupported where the server knows no manifests, or has none of this
// place.
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
		if _, end, _ := bytes.Cut(text[bytes.LastIndexByte(text, 0)+1:], []byte("end ")); !bytes.HasSuffix(end, []byte("\n")) {
			return berth.Errorf(berth.Unavailable, "the manifest is truncated")
		}
		return nil
	})
	if berth.CodeOf(err) == berth.NotFound {
		return nil, berth.Errorf(berth.NotFound, "there is nothing at %s", berth.CleanURL(rawURL))
	}
	return text, describe("asking what is in", rawURL, err)
}

// Small files come together, as many as these at once.
const (
	packedSize = 256 << 10 // of one file, at most
	packBytes  = 8 << 20   // of a pack, about
	packFiles  = 1000      // in a pack, at most
	packLeast  = 4         // files that are worth a pack
)

// Contents brings files of the tree at rawURL, those in want, each to the path that to gives: small
// ones in packs, large ones in pieces.
func (c *Client) Contents(ctx context.Context, rawURL string, t *berth.Tree, want []int, to func(i int) string) error {
	var packs [][]int
	alone := want
	if !t.Single && len(want) >= packLeast {
		packs, alone = divide(t, want)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(c.parallel)
	one := func(i int) error {
		f, u := &t.Files[i], trimSlash(rawURL)
		if !t.Single {
			u = Join(u, f.Path)
		}
		if err := c.fetchTo(gctx, fixed(u), version{}, to(i), f.Size); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		return nil
	}
	for _, p := range packs {
		g.Go(func() error {
			err := c.pack(gctx, rawURL, t, p, to)
			if berth.CodeOf(err) != berth.Unsupported {
				return err
			}
			for _, i := range p { // an older server
				if err := one(i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for _, i := range alone {
		g.Go(func() error { return one(i) })
	}
	return describe("fetching", rawURL, g.Wait())
}

// divide says which files come together.
func divide(t *berth.Tree, want []int) (packs [][]int, alone []int) {
	var pack []int
	var size int64
	for _, i := range want {
		n := t.Files[i].Size
		if n > packedSize {
			alone = append(alone, i)
			continue
		}
		if len(pack) == packFiles || size+n > packBytes {
			packs, pack, size = append(packs, pack), nil, 0
		}
		pack, size = append(pack, i), size+n
	}
	if len(pack) > 0 {
		packs = append(packs, pack)
	}
	return packs, alone
}

// pack brings several small files in one answer.
func (c *Client) pack(ctx context.Context, rawURL string, t *berth.Tree, list []int, to func(i int) string) error {
	var names bytes.Buffer
	for _, i := range list {
		names.WriteString(t.Files[i].Path)
		names.WriteByte(0)
	}
	last := 0 // that could not be written
	err := c.retry(ctx, func() error {
		body := section{io.NewSectionReader(bytes.NewReader(names.Bytes()), 0, int64(names.Len()))}
		res, err := c.do(ctx, http.MethodPost, addQuery(trimSlash(rawURL), "comp=pack"), nil, body)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		n := 0
		err = berth.ReadPack(res.Body, func(path string, size int64, r io.Reader) error {
			if n == len(list) || path != t.Files[list[n]].Path || size != t.Files[list[n]].Size {
				return berth.Errorf(berth.Internal, "the server sent %s, which was not requested", path)
			}
			i := list[n]
			n++
			if err := writeFile(to(i), r); err != nil {
				last = i
				return err
			}
			return nil
		})
		var ours *berth.Error
		if err != nil && !errors.As(err, &ours) {
			err = cutShort(ctx, err)
		}
		if err == nil && n != len(list) {
			err = berth.Errorf(berth.Unavailable, "the server sent %d of %d files", n, len(list))
		}
		return err
	})
	if berth.IsDiskFull(err) {
		f := &t.Files[last]
		err = fmt.Errorf("%s: %w", f.Path, noRoom(err, filepath.Dir(to(last)), f.Size))
	}
	return err
}

func writeFile(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// fetchTo brings one file to a path of ours.
func (c *Client) fetchTo(ctx context.Context, from address, v version, path string, size int64) (err error) {
	defer func() { err = noRoom(err, filepath.Dir(path), size) }()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if size > c.whole {
		err = c.pieces(ctx, from, v, f, size)
	} else {
		_, err = c.stream(ctx, from, v, f, size)
	}
	if err != nil {
		return err
	}
	return f.Close()
}
