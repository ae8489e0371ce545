package data

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Sent remembers which files of an upload are there already, so that one that was cut off is not begun anew. Its methods
// are called concurrently.
type Sent interface {
	Has(rel string) bool
	Add(rel string)
}

// PutFolder sends the files below dir to the folder at rawURL. Symbolic links to files are followed; what is no file is
// named in skipped. sent may be nil.
func (c *Client) PutFolder(ctx context.Context, dir, rawURL string, sent Sent, t *Total) (skipped []string, err error) {
	var files []string
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			if p == dir && errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			if info, err := os.Stat(p); err != nil || !info.Mode().IsRegular() {
				skipped = append(skipped, filepath.ToSlash(rel))
				return nil //nolint:nilerr // it is named among those left out
			}
		}
		files = append(files, filepath.ToSlash(rel))
		return nil
	})
	if err != nil {
		return skipped, fmt.Errorf("listing %s: %w", dir, err)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(c.parallel)
	for _, rel := range files {
		if sent != nil && sent.Has(rel) {
			continue
		}
		g.Go(func() error {
			if err := c.PutFile(gctx, filepath.Join(dir, filepath.FromSlash(rel)), Join(rawURL, rel), t); err != nil {
				return err
			}
			if sent != nil {
				sent.Add(rel)
			}
			return nil
		})
	}
	return skipped, g.Wait()
}

// PutFile sends a file to rawURL, replacing what is there.
func (c *Client) PutFile(ctx context.Context, from, rawURL string, t *Total) error {
	rawURL = trimSlash(rawURL)
	if to, ok, err := filePath(rawURL); ok {
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return copyFile(from, to, t)
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if size > c.whole {
		err = c.putBlocks(ctx, f, size, rawURL)
	} else {
		h := http.Header{"X-Ms-Blob-Type": {"BlockBlob"}, "Content-Type": {contentType(from)}}
		err = c.put(ctx, rawURL, h, f, 0, size)
	}
	if err != nil {
		return describe("sending", rawURL, err)
	}
	t.Files.Add(1)
	t.Bytes.Add(size)
	return nil
}

// putBlocks sends a large file as blocks, in parallel, and then the list of them.
func (c *Client) putBlocks(ctx context.Context, f *os.File, size int64, rawURL string) error {
	piece := max(c.piece, size/40000+1) // a blob has 50,000 blocks at most
	var list strings.Builder
	list.WriteString(`<?xml version="1.0" encoding="utf-8"?><BlockList>`)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(c.parallel/4, 2))
	for i, at := 0, int64(0); at < size; i, at = i+1, at+piece {
		id := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "berth-%010d", i))
		list.WriteString("<Latest>" + id + "</Latest>")
		u := addQuery(rawURL, "comp=block&blockid="+url.QueryEscape(id))
		g.Go(func() error { return c.put(gctx, u, nil, f, at, min(piece, size-at)) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	list.WriteString("</BlockList>")
	h := http.Header{"Content-Type": {"application/xml"}, "X-Ms-Blob-Content-Type": {contentType(f.Name())}}
	body := list.String()
	return c.put(ctx, addQuery(rawURL, "comp=blocklist"), h, strings.NewReader(body), 0, int64(len(body)))
}

// put sends n bytes of r from offset at.
func (c *Client) put(ctx context.Context, u string, h http.Header, r io.ReaderAt, at, n int64) error {
	return c.retry(ctx, func() error {
		var body io.Reader = section{io.NewSectionReader(r, at, n)}
		if n == 0 {
			body = http.NoBody
		}
		res, err := c.do(ctx, http.MethodPut, u, h, body)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 4<<10))
		return res.Body.Close()
	})
}

// section is a body that knows its length.
type section struct{ *io.SectionReader }

func (s section) Len() int64 { return s.Size() }

// Join is the URL of a path, with slashes, below a folder.
func Join(rawURL, rel string) string {
	base, query, signed := strings.Cut(rawURL, "?")
	parts := strings.Split(path.Clean(rel), "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	u := strings.TrimSuffix(base, "/") + "/" + strings.Join(parts, "/")
	if signed {
		u += "?" + query
	}
	return u
}

func addQuery(rawURL, q string) string {
	if strings.Contains(rawURL, "?") {
		return rawURL + "&" + q
	}
	return rawURL + "?" + q
}

func contentType(name string) string {
	switch ext := strings.ToLower(filepath.Ext(name)); ext {
	case ".txt", ".log", ".out", ".err", ".md", ".yaml", ".yml", ".py":
		return "text/plain; charset=utf-8"
	case ".json":
		return "application/json"
	case ".csv":
		return "text/csv; charset=utf-8"
	default:
		if t := mime.TypeByExtension(ext); t != "" {
			return t
		}
	}
	return "application/octet-stream"
}
