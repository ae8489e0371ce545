// Package data moves files between a node and where they are kept: blob storage behind signed URLs,
// public web servers, and the node's own disk (file URLs).
//
// Small files go in parallel, large ones in parallel pieces; what fails for a passing reason is
// tried again, and an interrupted piece continues where it was cut.
package data

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
)

// Options adjust a Client. The zero value is good.
type Options struct {
	CA string // PEM to trust besides the system's roots
	// Parallel is how many transfers run at once; 0 means 16.
	Parallel int
	// Socket is the path of the server's socket where it is on this machine, and Storage the
	// address of its storage (see Root), which is reached over it.
	Socket, Storage string
}

// Client moves files. It may be used concurrently.
type Client struct {
	http     *http.Client
	parallel int
	below    string // see Below
	// compares says that the storage knows no If-Match: tags are compared with those of answers.
	compares bool
	// Sizes; see New.
	whole int64 // the largest file that goes in one piece
	piece int64
	page  int64         // of a list, at most
	pause time.Duration // before the second attempt; doubled for each further one
	// stalled is after how long without a byte a request is given up.
	stalled time.Duration
}

// attempts is how often a piece is tried.
const attempts = 6

// New makes a Client.
func New(o Options) (*Client, error) {
	if o.Parallel <= 0 {
		o.Parallel = 16
	}
	tr := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		MaxIdleConnsPerHost:   o.Parallel,
		IdleConnTimeout:       30 * time.Second,
		TLSHandshakeTimeout:   15 * time.Second,
		ResponseHeaderTimeout: 2 * time.Minute,
		DisableCompression:    true,
		WriteBufferSize:       64 << 10,
		ReadBufferSize:        64 << 10,
		// One connection per transfer is faster for large files than streams that share one.
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	trusting, err := Trust(tr, o.CA)
	if err != nil {
		return nil, err
	}
	if o.Socket != "" && o.Storage != "" {
		root, err := url.Parse(o.Storage)
		if err != nil {
			return nil, berth.Errorf(berth.Invalid, "%s is not a storage URL", berth.CleanURL(o.Storage))
		}
		trusting = newNear(trusting, tr, *root, o.Socket)
	}
	return &Client{
		http: &http.Client{Transport: trusting, CheckRedirect: withoutReferer}, parallel: o.Parallel, whole: 64 << 20, piece: 16 << 20, page: maxPage, pause: 100 * time.Millisecond, stalled: stalled,
	}, nil
}

// withoutReferer keeps an address that redirects, which may have a signature, from where it leads.
func withoutReferer(r *http.Request, via []*http.Request) error {
	r.Header.Del("Referer")
	if len(via) >= 10 {
		return errors.New("it redirects without end")
	}
	return nil
}

// Close lets idle connections go.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Total is what a transfer moved.
type Total struct {
	Files, Bytes atomic.Int64
}

// Folder brings the folder at rawURL into dir, which exists. A folder without files is NotFound.
func (c *Client) Folder(ctx context.Context, rawURL, dir string, t *Total) error {
	if path, ok, err := berth.FileURL(rawURL); ok {
		if err != nil {
			return err
		}
		return c.copyTree(ctx, path, dir, t)
	}
	f, err := parse(rawURL)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(c.parallel)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	n := 0
	err = c.list(gctx, f, func(b blob) error {
		n++
		rel, err := local(b.name, f.prefix)
		if err != nil {
			return err
		}
		if strings.HasSuffix(b.name, "/") {
			return root.MkdirAll(rel, 0o700)
		}
		g.Go(func() error { return c.fetch(gctx, f.url(b.name), root, rel, version{tag: strong(b.tag)}, b.size, t) })
		return nil
	})
	if werr := g.Wait(); err == nil || errors.Is(err, context.Canceled) {
		err = errors.Join(werr, ctx.Err())
	}
	if err != nil {
		return describe("fetching", rawURL, err)
	}
	if n == 0 {
		return berth.Errorf(berth.NotFound, "there is nothing at %s", berth.CleanURL(rawURL))
	}
	return nil
}

// File brings the file at rawURL to path, whose directory exists.
func (c *Client) File(ctx context.Context, rawURL, path string, t *Total) error {
	rawURL = trimSlash(rawURL)
	if from, ok, err := berth.FileURL(rawURL); ok {
		if err != nil {
			return err
		}
		return c.copyFile(from, path, t)
	}
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer root.Close()
	return describe("fetching", rawURL, c.fetch(ctx, rawURL, root, filepath.Base(path), version{}, -1, t))
}

// local is the path below a folder of a blob, refused when it would lie elsewhere.
func local(name, prefix string) (string, error) {
	rel, ok := strings.CutPrefix(name, prefix)
	p := filepath.FromSlash(strings.TrimSuffix(rel, "/"))
	if !ok || !filepath.IsLocal(p) || strings.ContainsAny(rel, "\\\x00") {
		return "", berth.Errorf(berth.Invalid, "the folder's list contains %q, which is outside the folder", name)
	}
	return p, nil
}

// LocalPath is the path a file URL names; false when rawURL is none.
func LocalPath(rawURL string) (string, bool) {
	p, ok, err := berth.FileURL(rawURL)
	return p, ok && err == nil
}

// trimSlash takes the slash off the end of a URL's path: outputs that are files are often written
// down as folders are.
func trimSlash(rawURL string) string {
	base, query, signed := strings.Cut(rawURL, "?")
	base = strings.TrimRight(base, "/")
	if signed {
		base += "?" + query
	}
	return base
}

func describe(doing, rawURL string, err error) error {
	if err == nil {
		return nil
	}
	code := berth.CodeOf(err)
	if errors.Is(err, fs.ErrNotExist) {
		code = berth.NotFound
	}
	return &berth.Error{Code: code, Msg: fmt.Sprintf("%s %s: %v", doing, berth.CleanURL(rawURL), err), Err: err}
}

// copyTree copies a folder of this machine. A link that leads out of it is refused: whoever may
// write there would have any file of this machine copied.
func (c *Client) copyTree(ctx context.Context, from, to string, t *Total) error {
	source, err := c.openDir(from)
	if errors.Is(err, syscall.ENOTDIR) || errors.As(err, new(*LeftOut)) {
		return berth.Errorf(berth.Invalid, "%s is a file, not a folder", from)
	}
	if err != nil {
		return describe("fetching", "file://"+from, err)
	}
	defer source.Close()
	target, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer target.Close()
	deep := func(rel string) error {
		return berth.Errorf(berth.Invalid, "%s %s and is not copied; mount the folder (mode ro_mount)", filepath.Join(from, rel), whyDeep)
	}
	return source.walk(ctx, deep, func(rel string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			return target.MkdirAll(rel, 0o700)
		}
		f, err := source.open(rel)
		var left *LeftOut
		if errors.As(err, &left) {
			if left.Why == whyOut {
				return berth.Errorf(berth.Invalid, "%s %s and is not copied; mount the folder (mode ro_mount), or replace it with the file itself", filepath.Join(from, rel), whyOut)
			}
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		return count(f, t, copyTo(target, rel, f))
	})
}

// copyFile copies a file of this machine.
func (c *Client) copyFile(from, to string, t *Total) error {
	in, err := c.openFile(from)
	if err != nil {
		return describe("fetching", "file://"+from, err)
	}
	defer in.Close()
	target, err := os.OpenRoot(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer target.Close()
	return count(in, t, copyTo(target, filepath.Base(to), in))
}

func count(f *os.File, t *Total, err error) error {
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		t.Files.Add(1)
		t.Bytes.Add(info.Size())
	}
	return err
}

// copyTo writes an open file to a path below a directory, replacing what is there.
func copyTo(target *os.Root, rel string, in *os.File) error {
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if dir := filepath.Dir(rel); dir != "." {
		if err := target.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	out, err := target.OpenFile(rel, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|syscall.O_NONBLOCK, info.Mode().Perm()|0o600)
	if err == nil {
		out, err = regular(out, rel)
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}
