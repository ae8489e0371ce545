package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/berthml/berth"
)

// Small files go together: of a thousand of them the requests would cost more than the bytes.
const (
	packedSize = 256 << 10 // of one file, at most
	packBytes  = 8 << 20   // of a pack, about
	packFiles  = 1000      // in a pack, at most
	packLeast  = 4         // files that are worth a pack
)

// packs divides files into those that go together and those that go by themselves.
func packs(files []File) (together [][]File, alone []File) {
	var pack []File
	var size int64
	for _, f := range files {
		if f.Size > packedSize {
			alone = append(alone, f)
			continue
		}
		if len(pack) == packFiles || size+f.Size > packBytes {
			together, pack, size = append(together, pack), nil, 0
		}
		pack, size = append(pack, f), size+f.Size
	}
	if len(pack) > 0 {
		together = append(together, pack)
	}
	if len(together) == 1 && len(pack) < packLeast {
		return nil, files
	}
	return together, alone
}

// sendPacks uploads packs and returns the files of those that a server which knows no packs did not
// take.
func (c *Client) sendPacks(ctx context.Context, to *folder, all [][]File, count func(int64)) (left []File, err error) {
	var unknown atomic.Bool
	refused := make([]bool, len(all))
	err = each(ctx, len(all), func(ctx context.Context, i int) error {
		if unknown.Load() {
			refused[i] = true
			return nil
		}
		err := c.sendPack(ctx, to, all[i], count)
		var e *berth.Error
		if errors.As(err, &e) && e.Wire == "UnsupportedOperation" {
			unknown.Store(true)
			refused[i] = true
			return nil
		}
		return err
	})
	for i, r := range refused {
		if r {
			left = append(left, all[i]...)
		}
	}
	return left, err
}

func (c *Client) sendPack(ctx context.Context, to *folder, files []File, count func(int64)) error {
	var b bytes.Buffer
	var sent int64
	for _, f := range files {
		data, err := readSmall(f)
		if err != nil {
			return err
		}
		b.Write(berth.AppendPackFile(nil, f.Name, int64(len(data))))
		b.Write(data)
		sent += f.Size
	}
	b.Write(berth.AppendPackEnd(nil, len(files)))
	pack := part{address: withQuery(to.at(""), "comp=pack"), body: io.NewSectionReader(bytes.NewReader(b.Bytes()), 0, int64(b.Len()))}
	err := c.persist(ctx, http.MethodPut, func() error {
		return c.sendOnce(ctx, pack, func(int64) {})
	})
	if err == nil {
		count(sent)
	}
	return err
}

// readSmall reads a file that may have become another one since it was listed: it is sent as long
// as it was then.
func readSmall(f File) ([]byte, error) {
	in, err := os.Open(f.Path)
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "upload %s: %w", f.Name, err)
	}
	defer in.Close() // opened for reading
	data := make([]byte, f.Size)
	n, err := io.ReadFull(in, data)
	if err != nil && f.Hash != "" {
		return nil, changed(f)
	}
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "upload %s: the file shrank while it was being read (%d of %d bytes): %w", f.Name, n, f.Size, err)
	}
	if f.Hash != "" {
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != f.Hash {
			return nil, changed(f)
		}
	}
	return data, nil
}
