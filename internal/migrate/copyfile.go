package migrate

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
)

// files brings over the files of a run or model that are not there yet. to is what it is in the
// workspace.
func (c *copier) files(ctx context.Context, of, to Owner, uri string) error {
	all, err := c.from.Files(ctx, of)
	if err != nil || len(all) == 0 {
		return c.attempt(err, "files of %s", of)
	}
	root, ours := strings.CutPrefix(uri, "mlflow-artifacts:/")
	if !ours {
		c.leave("%d files of %s: their experiment keeps files at %s", len(all), of, uri)
		return nil
	}
	root = strings.TrimLeft(root, "/")
	list, id := c.to.OwnFiles, to.Run
	if to.Model != "" {
		list, id = c.to.ModelFiles, to.Model
	}
	there, err := list(ctx, id)
	if err != nil {
		return c.attempt(err, "files of %s", of)
	}
	have := make(map[string]int64, len(there))
	for _, f := range there {
		have[f.Path] = f.Size
	}
	for _, f := range all {
		if f.Err != nil {
			if err := c.attempt(f.Err, "file %s of %s", f.Path, of); err != nil {
				return err
			}
			continue
		}
		if size, ok := have[f.Path]; ok && size == f.Size && !c.Full {
			continue
		}
		n, err := c.put(ctx, root+"/"+f.Path, of, f)
		if err != nil {
			if err := c.attempt(err, "file %s of %s", f.Path, of); err != nil {
				return err
			}
			continue
		}
		c.count.Files++
		c.count.Bytes += n
	}
	return nil
}

// opened is a file of the source that is sent on. It keeps why it could not be read, which the
// error of sending does not say.
type opened struct {
	io.ReadCloser
	err    *atomic.Pointer[error]
	n      *atomic.Int64 // bytes that were read
	closed atomic.Bool
}

func (o *opened) Read(b []byte) (int, error) {
	n, err := o.ReadCloser.Read(b)
	o.n.Add(int64(n))
	if err != nil && err != io.EOF && !o.closed.Load() {
		o.err.Store(&err)
	}
	return n, err
}

func (o *opened) Close() error {
	o.closed.Store(true)
	return o.ReadCloser.Close()
}

// put brings over a file, and returns its size. It is read again where the connection to the source
// was lost.
func (c *copier) put(ctx context.Context, name string, of Owner, f File) (int64, error) {
	var lost atomic.Pointer[error]
	var n atomic.Int64
	err := c.to.PutArtifact(ctx, name, func() (io.ReadCloser, error) {
		if err := lost.Load(); err != nil && (leaves(*err) || errors.Is(*err, errTimeout)) {
			return nil, *err
		}
		lost.Store(nil)
		n.Store(0)
		r, err := c.from.Open(ctx, of, f)
		if err != nil {
			lost.Store(&err)
			return nil, err
		}
		return &opened{ReadCloser: r, err: &lost, n: &n}, nil
	})
	if reason := lost.Load(); err != nil && reason != nil {
		return 0, *reason
	}
	return n.Load(), err
}
