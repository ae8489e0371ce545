package front

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/pace"
)

// What one request may bring. It is held in memory once all of it is there.
const (
	maxPackFiles = 4096
	maxPackBytes = 64 << 20
	maxPackPaths = maxPackFiles << 10
)

// maxPackWire is how long a pack may be with its paths.
const maxPackWire = maxPackBytes + maxPackFiles*8<<10

// putPack keeps many small files below a folder. It is ours: of a thousand files each request costs
// more than the file.
func (c *call) putPack() error {
	folder := strings.TrimRight(c.name, "/") + "/"
	spool, err := c.h.store.Spool(io.LimitReader(c.body(), maxPackWire))
	if err != nil {
		return err
	}
	defer spool.Close()
	var files []blob.Packed
	var total int64
	err = berth.ReadPack(spool, func(path string, size int64, r io.Reader) error {
		total += size
		if len(files) == maxPackFiles || size > blob.MaxPacked || total > maxPackBytes {
			return coded(berth.Invalid, "RequestBodyTooLarge", "a pack has at most 4096 files of 256 KiB, and 64 MiB in all")
		}
		data := make([]byte, size)
		if _, err := io.ReadFull(r, data); err != nil {
			return berth.Errorf(berth.Invalid, "the pack was cut off: %w", err)
		}
		files = append(files, blob.Packed{Name: folder + path, Data: data})
		return nil
	})
	if err != nil {
		return err
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	if err := c.mayWrite("w", names...); err != nil {
		return err
	}
	if err := c.h.store.PutMany(c.r.Context(), c.container, files); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusCreated)
	return nil
}

// getPack sends those of the files below a folder whose paths are in the body, each ended by a zero
// byte, in that order.
func (c *call) getPack() error {
	folder := strings.TrimRight(c.name, "/") + "/"
	text, err := io.ReadAll(io.LimitReader(pace.Limit(c.w, c.r, pace.Document).Body, maxPackPaths+1))
	if err != nil {
		return err
	}
	// Counted first: a list of nothing but zero bytes would be millions of paths.
	if len(text) > maxPackPaths || bytes.Count(text, []byte{0}) > maxPackFiles {
		return coded(berth.Invalid, "RequestBodyTooLarge", "a pack has at most 4096 files, with paths of 4 MiB in all")
	}
	paths := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	if len(paths) > maxPackFiles {
		return coded(berth.Invalid, "RequestBodyTooLarge", "a pack has at most 4096 files, with paths of 4 MiB in all")
	}
	c.w.Header().Set("Content-Type", "application/octet-stream")
	var buf []byte
	for i, p := range paths {
		r, err := c.h.store.Open(c.r.Context(), c.container, folder+p)
		if err == nil {
			buf = berth.AppendPackFile(buf[:0], p, r.Size())
			if _, err = c.w.Write(buf); err == nil {
				_, err = r.CopyRange(c.w, 0, r.Size())
			}
			r.Close()
		}
		if err != nil && i == 0 {
			return err
		}
		if err != nil {
			return nil //nolint:nilerr // the status is sent: without its end nobody takes it for whole
		}
	}
	_, _ = c.w.Write(berth.AppendPackEnd(buf[:0], len(paths))) // a client that is gone asks again
	return nil
}
