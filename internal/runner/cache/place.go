package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// Place is a folder, or a file, in storage that knows no hashes. Its files are told apart by the
// tags that the storage gives them, and hashed when they are here.
type Place struct {
	// Scope tells the place from all others.
	Scope  string
	Single bool
	Files  []PlaceFile
	// Skipped are names that cannot be files on a node.
	Skipped []string
	// Room refuses files for which there is no room, before the first of them is fetched. It may be
	// nil.
	Room func(want []int) error
	// Fetch brings files: Files[i], of those in want, to the path that to gives.
	Fetch func(ctx context.Context, want []int, to func(i int) string) error
}

// PlaceFile is a file of a place.
type PlaceFile struct {
	Path string // as in [berth.TreeFile]
	Size int64
	Tag  string // changes with the content; empty where there is none
}

// GetPlace brings a place here unless it is here as the list says, and checks it. Files that are as
// they were are not fetched again. Where they are not what is known of them, what is known is wrong
// and forgotten: the storage itself knows no hashes that they could contradict.
func (c *Cache) GetPlace(ctx context.Context, p Place) (*Use, error) {
	defer c.tend(p.Scope)()
	get := func() (*Use, error) {
		return c.Get(ctx, Source{
			Name:     p.name(),
			Manifest: func(ctx context.Context) ([]byte, error) { return c.manifest(ctx, p) },
			Fetch: func(ctx context.Context, _ *berth.Tree, want []int, to func(int) string) error {
				return p.Fetch(ctx, want, to)
			},
		})
	}
	use, err := get()
	if errors.Is(err, errMismatch) && ctx.Err() == nil {
		_ = os.Remove(c.known(p.Scope))
		if use, err = get(); err == nil {
			use.Warnings = append(use.Warnings, "the node's record of its files was wrong or they changed under the same tag; they were fetched again")
		}
		if errors.Is(err, errMismatch) {
			err = berth.Errorf(berth.Conflict, "its files change while they are fetched, and their tags do not: %w", err)
		}
	}
	if code := berth.CodeOf(err); err != nil && ctx.Err() == nil && code != berth.Unavailable && code != berth.Conflict {
		_ = os.Remove(c.known(p.Scope)) // in case that what is known of it is the reason
	}
	return use, err
}

// name tells the place as it is now from what it was; empty where that cannot be told.
func (p *Place) name() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %v\n", p.Scope, p.Single)
	for i := range p.Files {
		f := &p.Files[i]
		if f.Tag == "" && f.Path[len(f.Path)-1] != '/' {
			return ""
		}
		fmt.Fprintf(h, "%q %d %q\n", f.Path, f.Size, f.Tag)
	}
	return "place " + hex.EncodeToString(h.Sum(nil))
}

// manifest is that of a place. The hashes of files that are as they were are known; the others are
// brought here.
func (c *Cache) manifest(ctx context.Context, p Place) ([]byte, error) {
	if err := c.prepare(); err != nil {
		return nil, err
	}
	t := berth.Tree{Single: p.Single, Files: make([]berth.TreeFile, len(p.Files))}
	known := c.readKnown(p.Scope)
	var want []int
	for i, f := range p.Files {
		t.Files[i] = berth.TreeFile{Path: f.Path, Size: f.Size, Mode: 0o600}
		if t.Files[i].Folder() {
			t.Files[i].Hash = "-"
		} else if t.Files[i].Hash = known[f]; t.Files[i].Hash == "" || f.Tag == "" {
			t.Files[i].Hash = ""
			want = append(want, i)
		}
	}
	if len(want) > 0 {
		err := c.gather(ctx, p, &t, want)
		if ctx.Err() == nil && c.afterFull(err, sizeOf(&t, want)) {
			want = slices.DeleteFunc(want, func(i int) bool { return t.Files[i].Hash != "" })
			err = c.gather(ctx, p, &t, want)
		}
		if err != nil {
			return nil, err
		}
		c.writeKnown(&p, &t)
	}
	text := t.AppendHead(nil)
	for i := range t.Files {
		text = t.Files[i].AppendFile(text)
	}
	for _, name := range p.Skipped[:min(len(p.Skipped), 20)] {
		text = berth.AppendSkipped(text, strings.ReplaceAll(name, "\x00", "?"))
	}
	return t.AppendEnd(text, len(t.Files)), nil
}

// A batch of files of a place has at most so many files, and ends with the one that makes it so
// large.
const (
	batchFiles = 1000
	batchBytes = 1 << 30
)

// sizeOf is the size of some files of a tree.
func sizeOf(t *berth.Tree, list []int) (bytes int64) {
	for _, i := range list {
		bytes += t.Files[i].Size
	}
	return bytes
}

// gather fetches files of a place, hashes them and keeps them as contents. It does so in batches:
// those that are complete are kept when the storage goes away.
func (c *Cache) gather(ctx context.Context, p Place, t *berth.Tree, want []int) error {
	c.makeRoom(sizeOf(t, want))
	if p.Room != nil {
		if err := p.Room(want); err != nil {
			return err
		}
	}
	for len(want) > 0 {
		n, bytes := 0, int64(0)
		for n < min(len(want), batchFiles) && bytes < batchBytes {
			bytes += t.Files[want[n]].Size
			n++
		}
		err := c.gatherBatch(ctx, p, t, want[:n])
		c.addKnown(&p, t, want[:n]) // after an error too, so that what came before it is not fetched again
		if err != nil {
			return err
		}
		want = want[n:]
	}
	return nil
}

func (c *Cache) gatherBatch(ctx context.Context, p Place, t *berth.Tree, want []int) error {
	tmp := c.temp()
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return full(err)
	}
	defer os.RemoveAll(tmp)
	part := func(i int) string { return filepath.Join(tmp, strconv.Itoa(i)) }
	if err := p.Fetch(ctx, want, part); err != nil {
		return full(err)
	}
	return each(ctx, len(want), func(n int) error {
		f, from := &t.Files[want[n]], part(want[n])
		size, sum, err := sumFile(from)
		if err != nil {
			return err
		}
		if size != f.Size {
			return berth.Errorf(berth.Internal, "%s has %d bytes, want %d", f.Path, size, f.Size)
		}
		f.Hash = sum
		to := c.content(f)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return full(err)
		}
		return full(os.Rename(from, to))
	})
}
