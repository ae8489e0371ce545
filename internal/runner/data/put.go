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
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
)

// Sent remembers which files of an upload are there already, so that one that was cut off is not
// begun again. Its methods are called concurrently.
type Sent interface {
	Has(rel string) bool
	Add(rel string)
}

// PutFolder sends the files of a directory to the folder at rawURL. A link to a file of the same
// directory is sent as what it links to; other links, what is not a file and folders that are
// nested too deeply are named in left. sent may be nil.
func (c *Client) PutFolder(ctx context.Context, d *Dir, rawURL string, sent Sent, t *Total) (left []LeftOut, err error) {
	list, err := d.files(ctx)
	if err != nil {
		return list.left, err
	}
	put, done, err := c.putter(rawURL)
	if err != nil {
		return list.left, err
	}
	defer done()
	return c.putAll(ctx, d, list, sent, t, put)
}

// contents is what is in a directory.
type contents struct {
	files  []string
	left   []LeftOut // what is not a file, and folders that are nested too deeply
	closed []string  // what may not be read
}

// Closed is the error of a folder of which everything is kept but what may not be read.
type Closed struct{ Names []string }

func (c *Closed) Error() string {
	const most = 5
	text := strings.Join(c.Names[:min(len(c.Names), most)], ", ")
	if more := len(c.Names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ": permission denied; everything else was uploaded. Let the command leave files that their owner can read"
}

// files lists the files of a directory, and what is none.
func (d *Dir) files(ctx context.Context) (list contents, err error) {
	deep := func(rel string) error {
		list.left = append(list.left, LeftOut{rel, whyDeep})
		return nil
	}
	err = d.walk(ctx, deep, func(rel string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) && rel != "." {
			list.closed = append(list.closed, rel)
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		var l *LeftOut
		switch err := d.look(rel, e.Type()); {
		case errors.As(err, &l):
			list.left = append(list.left, *l)
		case err != nil:
			return err
		default:
			list.files = append(list.files, rel)
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("listing %s: %w", d.path, err)
	}
	return list, err
}

// putAll has the files of a directory put that are not there yet, several at once. It returns what
// was left out.
func (c *Client) putAll(ctx context.Context, d *Dir, list contents, sent Sent, t *Total, put func(context.Context, *os.File, string) error) ([]LeftOut, error) {
	left, closed := list.left, list.closed
	var mu sync.Mutex
	leave := func(err error) error {
		var l *LeftOut
		var shut *Closed
		mu.Lock()
		defer mu.Unlock()
		switch {
		case errors.As(err, &l):
			left = append(left, *l)
		case errors.As(err, &shut):
			closed = append(closed, shut.Names...)
		default:
			return err
		}
		return nil
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(c.parallel)
	for _, rel := range list.files {
		if sent != nil && sent.Has(rel) {
			continue
		}
		g.Go(func() error {
			if err := c.putFrom(gctx, d, rel, func(f *os.File) error { return put(gctx, f, rel) }, t); err != nil {
				return leave(err)
			}
			if sent != nil {
				sent.Add(rel)
			}
			return nil
		})
	}
	err := g.Wait()
	slices.SortFunc(left, func(a, b LeftOut) int { return strings.Compare(a.Name, b.Name) })
	if err == nil && len(closed) > 0 {
		slices.Sort(closed)
		err = &Closed{closed}
	}
	return left, err
}

// PutFile sends a file of a directory to rawURL, replacing what is there. What is not a file is a
// LeftOut.
func (c *Client) PutFile(ctx context.Context, d *Dir, name, rawURL string, t *Total) error {
	rawURL = trimSlash(rawURL)
	put := func(f *os.File) error { return describe("sending", rawURL, c.send(ctx, f, fixed(rawURL), name)) }
	if to, ok, err := berth.FileURL(rawURL); ok {
		if err != nil {
			return err
		}
		target, err := c.makeDir(filepath.Dir(to))
		if err != nil {
			return err
		}
		defer target.Close()
		put = func(f *os.File) error { return replace(target, filepath.Base(to), f) }
	}
	return c.putFrom(ctx, d, name, put, t)
}

// putter is what sends a file to a path below the folder at rawURL, and what to do afterwards.
func (c *Client) putter(rawURL string) (put func(context.Context, *os.File, string) error, done func(), err error) {
	to, ok, err := berth.FileURL(rawURL)
	if err != nil {
		return nil, nil, err
	}
	if !ok {
		return func(ctx context.Context, f *os.File, rel string) error {
			u := Join(rawURL, rel)
			return describe("sending", u, c.send(ctx, f, fixed(u), rel))
		}, func() {}, nil
	}
	target, err := c.makeDir(to)
	if err != nil {
		return nil, nil, err
	}
	return func(_ context.Context, f *os.File, rel string) error { return replace(target, rel, f) }, func() { target.Close() }, nil
}

// putFrom opens a file and has it put.
func (c *Client) putFrom(ctx context.Context, d *Dir, name string, put func(*os.File) error, t *Total) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f, err := d.open(name)
	if errors.Is(err, fs.ErrPermission) {
		return &Closed{[]string{name}}
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := put(f); err != nil {
		return err
	}
	t.Files.Add(1)
	t.Bytes.Add(info.Size())
	return nil
}

// send sends an open file to a server that speaks as Azure's does.
func (c *Client) send(ctx context.Context, f source, to address, name string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if size > c.whole {
		return c.putBlocks(ctx, f, size, to, contentType(name))
	}
	h := http.Header{"X-Ms-Blob-Type": {"BlockBlob"}, "Content-Type": {contentType(name)}}
	return c.put(ctx, to, "", h, f, 0, size)
}

// restHeader tells our own server how much is to come, so that it refuses what it has no room for.
const restHeader = "X-Berth-Rest"

// putBlocks sends a large file as blocks, in parallel, and then the list of them.
func (c *Client) putBlocks(ctx context.Context, f source, size int64, to address, kind string) error {
	piece := max(c.piece, size/40000+1) // a blob has 50,000 blocks at most
	var list strings.Builder
	list.WriteString(`<?xml version="1.0" encoding="utf-8"?><BlockList>`)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(c.parallel/4, 2))
	for i, at := 0, int64(0); at < size; i, at = i+1, at+piece {
		id := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "berth-%010d", i))
		list.WriteString("<Latest>" + id + "</Latest>")
		q := "comp=block&blockid=" + url.QueryEscape(id)
		h := http.Header{restHeader: {strconv.FormatInt(size-at, 10)}}
		g.Go(func() error { return c.put(gctx, to, q, h, f, at, min(piece, size-at)) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	list.WriteString("</BlockList>")
	h := http.Header{"Content-Type": {"application/xml"}, "X-Ms-Blob-Content-Type": {kind}}
	body := list.String()
	return c.put(ctx, to, "comp=blocklist", h, strings.NewReader(body), 0, int64(len(body)))
}

// put sends n bytes of r from offset at; query is added to the address.
func (c *Client) put(ctx context.Context, to address, query string, h http.Header, r io.ReaderAt, at, n int64) error {
	return c.retry(ctx, func() error {
		u, err := to(ctx)
		if err != nil {
			return err
		}
		if query != "" {
			u = addQuery(u, query)
		}
		var body io.Reader = section{io.NewSectionReader(r, at, n)}
		if n == 0 {
			body = http.NoBody
		}
		res, err := c.do(ctx, http.MethodPut, u, h, body)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 4<<10))
		if err := res.Body.Close(); err != nil {
			return err
		}
		if res.StatusCode != http.StatusCreated { // what every storage answers when it has kept something
			return berth.Errorf(berth.Unavailable, "the server answered %s, which does not confirm the upload", res.Status)
		}
		return nil
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
