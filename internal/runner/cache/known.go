package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// known is the file with the hashes of a place's files, as they were when they were fetched last.
func (c *Cache) known(scope string) string { return c.path("places", hashOf(scope)) }

func (c *Cache) readKnown(scope string) map[PlaceFile]string {
	text, err := os.ReadFile(c.known(scope))
	if err != nil {
		return nil
	}
	hashes := map[PlaceFile]string{}
	for record := range bytes.SplitSeq(text, []byte{0}) {
		var size int64
		var hash, tag, path string
		if _, err := fmt.Sscanf(string(record), "%s %d %q %q", &hash, &size, &tag, &path); err == nil && isKey(hash) {
			hashes[PlaceFile{path, size, tag}] = hash
		}
	}
	return hashes
}

// writeKnown remembers the hashes of a place whose files are all known, and nothing else. What
// another job adds meanwhile of the same files is in it; of files that came to the place since, it
// is lost until that job writes its own. It is not needed: a file whose hash is not known is
// fetched.
func (c *Cache) writeKnown(p *Place, t *berth.Tree) {
	tmp := c.temp()
	err := appendKnown(tmp, p, t, all(t))
	if err == nil {
		err = os.Rename(tmp, c.known(p.Scope))
	}
	if err != nil {
		_ = os.Remove(tmp)
		c.o.Log.Warn("place record not saved", "err", err)
	}
}

// addKnown remembers the hashes of some files more, of those that have one.
func (c *Cache) addKnown(p *Place, t *berth.Tree, list []int) {
	if err := appendKnown(c.known(p.Scope), p, t, list); err != nil {
		c.o.Log.Warn("place record not saved", "err", err)
	}
}

// appendKnown adds the hashes of some files to a record. What is appended later counts.
func appendKnown(path string, p *Place, t *berth.Tree, list []int) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if info, err := f.Stat(); err == nil && info.Size() > 0 {
		b.WriteByte(0) // in case that somebody was killed in the middle of a record
	}
	for _, i := range list {
		if x := p.Files[i]; t.Files[i].Hash != "" {
			fmt.Fprintf(&b, "%s %d %q %q\x00", t.Files[i].Hash, x.Size, x.Tag, x.Path)
		}
	}
	_, err = f.Write(b.Bytes())
	return errors.Join(err, f.Close())
}

// lately is for how long a content that no tree has stays, and those of a place after it was last
// worked on.
const lately = time.Hour

// tend keeps what is known of a place young, and so the contents that were gathered for it, until
// done is called: gathering a place may take days.
func (c *Cache) tend(scope string) (done func()) {
	ctx, stop := context.WithCancel(c.ctx)
	var beside sync.WaitGroup
	beside.Go(func() {
		tick := time.NewTicker(c.tending)
		defer tick.Stop()
		for {
			now := time.Now()
			_ = os.Chtimes(c.known(scope), now, now) // before the first file came there is none
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		stop()
		beside.Wait()
	}
}

// gathered are the contents of the places that were worked on lately, by hash.
func (c *Cache) gathered() map[string]bool {
	hashes := map[string]bool{}
	places, _ := os.ReadDir(c.path("places")) // without it there are none
	for _, e := range places {
		if info, err := e.Info(); err != nil || time.Since(info.ModTime()) > lately {
			continue
		}
		text, err := os.ReadFile(c.path("places", e.Name()))
		if err != nil {
			continue
		}
		for record := range bytes.SplitSeq(text, []byte{0}) {
			if hash, _, ok := bytes.Cut(record, []byte{' '}); ok {
				hashes[string(hash)] = true
			}
		}
	}
	return hashes
}
