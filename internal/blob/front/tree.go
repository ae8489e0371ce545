package front

import (
	"bufio"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
)

// tree answers with the manifest of a folder; of one file where there is no such folder, or a file
// is asked for. It is ours: a node asks for it once and then for what it does not have. The hashes
// in it open nothing.
func (c *call) tree() error {
	sent := &sentWriter{w: c.w}
	w := bufio.NewWriterSize(sent, 64<<10)
	t := berth.Tree{Single: c.query.Get("type") == "file"}
	var buf, skips []byte
	n := 0
	put := func(f berth.TreeFile) error {
		if n++; n == 1 {
			c.w.Header().Set("Content-Type", "application/octet-stream")
			buf = t.AppendHead(buf[:0])
			if _, err := w.Write(buf); err != nil {
				return err
			}
		}
		buf = f.AppendFile(buf[:0])
		_, err := w.Write(buf)
		return err
	}
	err := error(&berth.Error{Code: berth.NotFound})
	if !t.Single {
		skipped, files := 0, map[string]bool{}
		err = c.h.store.Entries(c.r.Context(), c.container, c.name, func(e blob.Entry) error {
			if !berth.TreePath(strings.TrimSuffix(e.Path, "/")) || below(files, e.Path) {
				if skipped++; skipped <= maxSkipped {
					skips = berth.AppendSkipped(skips, e.Path)
				}
				return nil
			}
			files[e.Path] = true
			return put(berth.TreeFile{Path: e.Path, Size: e.Size, Mode: fileMode, Hash: e.Hash})
		})
	}
	if berth.CodeOf(err) == berth.NotFound {
		t.Single = true
		err = c.single(put)
	}
	if err == nil && n == 0 {
		return berth.Errorf(berth.Invalid, "no blob in this folder has a name that a file can have")
	}
	if err == nil {
		_, err = w.Write(skips)
	}
	if err == nil {
		if _, err = w.Write(t.AppendEnd(buf[:0], n)); err == nil {
			err = w.Flush()
		}
	}
	if err != nil && sent.any { // the status is sent: without its end nobody takes it for whole
		w.Reset(io.Discard)
		return nil
	}
	return err
}

// sentWriter knows whether anything was written.
type sentWriter struct {
	w   io.Writer
	any bool
}

func (s *sentWriter) Write(p []byte) (int, error) {
	s.any = true
	return s.w.Write(p)
}

// maxSkipped is how many names that are left out are told.
const maxSkipped = 20

// below says whether a path leads through a file.
func below(files map[string]bool, path string) bool {
	for i := range len(path) {
		if path[i] == '/' && files[path[:i]] {
			return true
		}
	}
	return false
}

// fileMode is that of every file: blobs have none of their own.
const fileMode = 0o600

// single is a blob as a tree of one file.
func (c *call) single(put func(berth.TreeFile) error) error {
	b, err := c.h.store.Stat(c.r.Context(), c.container, strings.TrimRight(c.name, "/"))
	if err != nil {
		return err
	}
	if b.Hash == "" {
		return berth.Errorf(berth.Conflict, "blob %s is still being written", b.Name)
	}
	name := path.Base(b.Name)
	if name == "." || name == "/" {
		return errors.New("a blob without a name")
	}
	return put(berth.TreeFile{Path: name, Size: b.Size, Mode: fileMode, Hash: b.Hash})
}
