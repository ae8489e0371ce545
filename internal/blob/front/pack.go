package front

import (
	"io"
	"net/http"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
)

// What one request may bring: it is held in memory.
const (
	maxPackFiles = 4096
	maxPackBytes = 64 << 20
)

// putPack keeps many small files below a folder. It is ours: of a thousand files each request costs
// more than the file.
func (c *call) putPack() error {
	folder := strings.TrimRight(c.name, "/") + "/"
	var files []blob.Packed
	var total int64
	err := berth.ReadPack(c.body(), func(path string, size int64, r io.Reader) error {
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
	text, err := io.ReadAll(io.LimitReader(c.r.Body, maxPackBytes))
	if err != nil {
		return err
	}
	paths := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	if len(paths) > maxPackFiles {
		return coded(berth.Invalid, "RequestBodyTooLarge", "a pack has at most 4096 files")
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
