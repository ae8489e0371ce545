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
	"syscall"
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

// fetch brings one file. size is what the list said, or -1.
func (c *Client) fetch(ctx context.Context, u string, root *os.Root, rel string, size int64, t *Total) error {
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
		err = c.pieces(ctx, fixed(u), "", f, size)
	} else {
		size, err = c.stream(ctx, fixed(u), "", f, size)
	}
	if err == nil {
		err = f.Close()
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

// match has a request answered only by the file that has a tag, if one is given.
func (c *Client) match(h http.Header, etag string) {
	if etag != "" && !c.compares {
		h.Set("If-Match", etag)
	}
}

// matched says whether an answer is of the file that has a tag, where the storage does not.
func (c *Client) matched(res *http.Response, etag string) error {
	if c.compares && etag != "" && !sameTag(etag, res.Header) {
		return berth.Errorf(berth.Precondition, "it is another file now")
	}
	return nil
}

// stream reads a file from its beginning to its end, and goes on where it was cut. It returns its
// size. Where an etag is given, only the file that has it is read. A weak tag matches nothing: then
// the file must not have been written to since, and have the same tag.
func (c *Client) stream(ctx context.Context, to address, etag string, w io.Writer, size int64) (int64, error) {
	var at int64
	var weak, since string
	err := c.retry(ctx, func() error {
		h := http.Header{}
		if at > 0 {
			h.Set("Range", fmt.Sprintf("bytes=%d-", at))
			if since != "" {
				h.Set("If-Unmodified-Since", since)
			}
		}
		c.match(h, etag)
		u, err := to(ctx)
		if err != nil {
			return err
		}
		res, err := c.do(ctx, http.MethodGet, u, h, nil)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if err := c.matched(res, etag); err != nil {
			return err
		}
		if at > 0 && res.Header.Get("ETag") != weak && weak != "" {
			return berth.Errorf(berth.Precondition, "it is another file now")
		}
		if at > 0 && res.StatusCode != http.StatusPartialContent {
			// The server knows no ranges: what is there already is skipped.
			if _, err := io.CopyN(io.Discard, res.Body, at); err != nil {
				return berth.Errorf(berth.Unavailable, "reading: %w", err)
			}
		}
		if etag == "" {
			if etag = strong(res.Header.Get("ETag")); etag == "" {
				weak, since = res.Header.Get("ETag"), res.Header.Get("Last-Modified")
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

// bytesOf is how many bytes were read of a file, as far as it was read.
func bytesOf(n, size int64) string {
	if n > size {
		return "more bytes"
	}
	return fmt.Sprintf("%d bytes", n)
}

// pieces reads a large file in parallel; etag is as for stream.
func (c *Client) pieces(ctx context.Context, to address, etag string, f *os.File, size int64) error {
	if err := f.Truncate(size); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(c.parallel/4, 2))
	for at := int64(0); at < size; at += c.piece {
		end := min(at+c.piece, size)
		g.Go(func() error {
			_, err := c.part(ctx, to, etag, f, at, end)
			return err
		})
	}
	return g.Wait()
}

// part reads the bytes of a file from at to end, to the same place in w, and goes on where it was
// cut. etag is as for stream; it returns that of what was read.
func (c *Client) part(ctx context.Context, to address, etag string, w io.WriterAt, at, end int64) (string, error) {
	err := c.retry(ctx, func() error {
		h := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", at, end-1)}}
		c.match(h, etag)
		u, err := to(ctx)
		if err != nil {
			return err
		}
		res, err := c.do(ctx, http.MethodGet, u, h, nil)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if err := c.matched(res, etag); err != nil {
			return err
		}
		if res.StatusCode != http.StatusPartialContent {
			return berth.Errorf(berth.Unsupported, "the server does not send parts of files")
		}
		if etag == "" {
			etag = strong(res.Header.Get("ETag"))
		}
		var n int64
		if b, ok := w.(buffer); ok { // without a copy
			var m int
			m, err = io.ReadFull(res.Body, b.p[at-b.off:end-b.off])
			n = int64(m)
		} else {
			n, err = io.Copy(io.NewOffsetWriter(w, at), io.LimitReader(res.Body, end-at))
		}
		if at += n; err == nil && at != end {
			err = io.ErrUnexpectedEOF
		}
		return cutShort(ctx, err)
	})
	return etag, err
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

// isFull says whether the reason of an error is that this machine's disk is full.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// noRoom says of the error of a file that was to come to a folder that the disk is full, where that
// is the reason. size is negative where it is not known.
func noRoom(err error, dir string, size int64) error {
	if !isFull(err) {
		return err
	}
	bytes := "it"
	if size >= 0 {
		bytes = fmt.Sprintf("its %d bytes", size)
	}
	return &berth.Error{Code: berth.Unavailable, Msg: fmt.Sprintf("the node's disk is full: there is no room for %s in %s", bytes, dir), Err: err}
}
