package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
)

// retry calls f until it succeeds, fails for good, or was tried often enough.
func (c *Client) retry(ctx context.Context, f func() error) error {
	wait := c.pause
	for i := 1; ; i++ {
		err := f()
		if err == nil || berth.CodeOf(err) != berth.Unavailable || i == attempts {
			return err
		}
		timer := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		wait *= 2
	}
}

// fetch brings one file. v and size are what the list said; size may be -1.
func (c *Client) fetch(ctx context.Context, u string, root *os.Root, rel string, v version, size int64, t *Total) error {
	if dir := filepath.Dir(rel); dir != "." {
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	f, err := root.OpenFile(rel, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if size > c.whole {
		err = c.pieces(ctx, fixed(u), v, f, size)
	} else {
		size, err = c.stream(ctx, fixed(u), v, f, size)
	}
	if err == nil {
		err = f.Close()
	}
	if berth.CodeOf(err) == berth.Precondition {
		err = &berth.Error{Code: berth.Precondition, Msg: "it changed while it was fetched; submit the job again when nobody writes to it", Err: err}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", rel, noRoom(err, root.Name(), size))
	}
	t.Files.Add(1)
	t.Bytes.Add(size)
	return nil
}

// address is where a request goes: a URL whose signature is good for long enough.
type address func(ctx context.Context) (string, error)

func fixed(u string) address { return func(context.Context) (string, error) { return u, nil } }

// stream reads a file from its beginning to its end, and goes on where it was cut, or begins again
// where nothing says that it is still the same. It returns its size, and reads only the version
// that is given, as far as one is.
func (c *Client) stream(ctx context.Context, to address, v version, w *os.File, size int64) (int64, error) {
	var at int64
	held := &pin{v: v}
	err := c.retry(ctx, func() error {
		if at > 0 && !held.version().known() {
			if err := errors.Join(w.Truncate(0), rewind(w)); err != nil {
				return err
			}
			at = 0
		}
		h := http.Header{}
		if at > 0 {
			h.Set("Range", fmt.Sprintf("bytes=%d-", at))
		}
		res, err := c.get(ctx, to, held, h)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if at > 0 && res.StatusCode != http.StatusPartialContent {
			// The server knows no ranges: what is there already is skipped.
			if _, err := io.CopyN(io.Discard, res.Body, at); err != nil {
				return berth.Errorf(berth.Unavailable, "reading: %w", err)
			}
		}
		var body io.Reader = res.Body
		if size >= 0 { // one byte more shows that there are more
			body = io.LimitReader(body, size-at+1)
		}
		n, err := io.Copy(w, body)
		at += n
		return cutShort(ctx, err)
	})
	if err == nil && size >= 0 && at != size {
		err = berth.Errorf(berth.Internal, "it has %s, but its folder's list says %d", bytesOf(at, size), size)
	}
	return at, err
}

func rewind(f *os.File) error {
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// get asks for a file, or a part of it, in the version that is held.
func (c *Client) get(ctx context.Context, to address, held *pin, h http.Header) (*http.Response, error) {
	v := held.version()
	if v.tag != "" && !c.compares {
		h.Set("If-Match", v.tag)
	}
	u, err := to(ctx)
	if err != nil {
		return nil, err
	}
	res, err := c.do(ctx, http.MethodGet, u, h, nil)
	if err != nil {
		return nil, err
	}
	got := versionOf(res)
	if err = held.hold(got); err == nil && c.compares && v.tag != "" && got.tag == "" {
		err = errChanged
	}
	if err != nil {
		res.Body.Close()
		return nil, err
	}
	return res, nil
}

// bytesOf is how many bytes were read of a file, as far as it was read.
func bytesOf(n, size int64) string {
	if n > size {
		return "more bytes"
	}
	return fmt.Sprintf("%d bytes", n)
}

// pieces reads a large file in parallel. All pieces are of one version, the one that is given or
// that of the first that comes; where nothing says which that is, the file is read as one.
func (c *Client) pieces(ctx context.Context, to address, v version, f *os.File, size int64) error {
	if err := f.Truncate(size); err != nil {
		return err
	}
	v.total = size
	held := &pin{v: v}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(c.parallel/4, 2))
	for at := int64(0); at < size && gctx.Err() == nil; at += c.piece {
		end := min(at+c.piece, size)
		g.Go(func() error {
			if err := c.part(gctx, to, held, fileSink{f}, at, end); err != nil {
				return err
			}
			if !held.version().firm() {
				return errLoose
			}
			return nil
		})
	}
	err := g.Wait()
	if err != nil && berth.CodeOf(err) == berth.Unsupported && ctx.Err() == nil {
		if err = f.Truncate(0); err == nil {
			_, err = c.stream(ctx, to, v, f, size)
		}
	}
	return err
}

// sink takes parts of a file.
type sink interface {
	// take reads what belongs from at to end.
	take(r io.Reader, at, end int64) (int64, error)
}

type fileSink struct{ f *os.File }

func (s fileSink) take(r io.Reader, at, end int64) (int64, error) {
	return io.Copy(io.NewOffsetWriter(s.f, at), io.LimitReader(r, end-at))
}

// part reads the bytes of a file from at to end, to the same place in w, and goes on where it was
// cut, or begins again as stream does.
func (c *Client) part(ctx context.Context, to address, held *pin, w sink, from, end int64) error {
	at := from
	return c.retry(ctx, func() error {
		if !held.version().known() {
			at = from
		}
		res, err := c.get(ctx, to, held, http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", at, end-1)}})
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusPartialContent {
			return errWhole
		}
		n, err := w.take(res.Body, at, end)
		if at += n; err == nil && at != end {
			err = io.ErrUnexpectedEOF
		}
		return cutShort(ctx, err)
	})
}

// cutShort is the error of a transfer that was cut short. Where it was by a file of this machine,
// the storage is not to blame, and asking it again helps nothing.
func cutShort(ctx context.Context, err error) error {
	switch ours := new(fs.PathError); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &ours):
		return err
	}
	return berth.Errorf(berth.Unavailable, "reading: %w", err)
}

// noRoom says of the error of a file that was to come to a folder that the disk is full, where that
// is the reason. size is negative where it is not known.
func noRoom(err error, dir string, size int64) error {
	if !berth.IsDiskFull(err) {
		return err
	}
	bytes := "it"
	if size >= 0 {
		bytes = fmt.Sprintf("its %d bytes", size)
	}
	return &berth.Error{Code: berth.Unavailable, Msg: fmt.Sprintf("the node's disk is full: there is no room for %s in %s", bytes, dir), Err: err}
}
