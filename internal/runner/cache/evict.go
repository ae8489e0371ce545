package cache

import (
	"cmp"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
)

const (
	// oldPrefix marks trees in tmp that were given up, which may be in use.
	oldPrefix = "old-"
	// perFile is what a file of a tree costs beside its content.
	perFile = 512
	// unused is when a tree goes that nobody uses, whatever room there is.
	unused = 7 * 24 * time.Hour
	// unusedLinks is when one goes that consists of the server's own contents: its links keep what
	// the server may have let go, and are soon made again.
	unusedLinks = 24 * time.Hour
	// old is the age of something in tmp whose process may be another one by now.
	old = 24 * time.Hour
	// warm is for how long a tree is not taken for the room of others.
	warm = time.Hour
)

// kept is a tree as eviction sees it.
type kept struct {
	key   string
	used  time.Time
	size  int64
	links bool // its contents are the server's own
}

// idle says whether nobody has used it for long.
func (k *kept) idle() bool {
	if k.links {
		return time.Since(k.used) >= unusedLinks
	}
	return time.Since(k.used) >= unused
}

// Evict removes trees, the one that was used longest ago first, until what is left fits and the
// disk has some room, and returns how many it removed. It takes none that is in use, and for the
// room of others none that was lately.
func (c *Cache) Evict() (removed int) {
	c.sweepTemps()
	limit := c.limit()
	return c.evict(func(k kept, left int64) bool {
		return left > limit || k.idle() || time.Since(k.used) > warm && !c.spare(0)
	})
}

// evict removes the trees that are to go, those that nobody uses; goes is asked in the order in
// which they were used, with what all that are left take.
func (c *Cache) evict(goes func(k kept, left int64) bool) (removed int) {
	list, left := c.list()
	for _, k := range list {
		if goes(k, left) && c.evictTree(k.key) {
			left -= k.size
			removed++
		}
	}
	if removed > 0 {
		c.sweepContent()
		c.sweepNames()
	}
	return removed
}

// list is the trees in the order in which they were used, and what they take.
func (c *Cache) list() (list []kept, total int64) {
	entries, err := os.ReadDir(c.path("trees"))
	if err != nil {
		return nil, 0
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !isKey(e.Name()) {
			continue
		}
		k := kept{key: e.Name(), used: info.ModTime(), size: c.weigh(e.Name())}
		if s, _ := c.loadSummary(c.path("trees", k.key)); s.Files > 0 {
			k.links = k.size == int64(s.Files)*perFile
		}
		total += k.size
		list = append(list, k)
	}
	slices.SortFunc(list, func(a, b kept) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.key, b.key)) })
	return list, total
}

// weigh is what a tree takes on the disk, without what is the server's.
func (c *Cache) weigh(key string) int64 {
	f, err := os.Open(c.path("trees", key, "state"))
	if err != nil {
		return 0
	}
	defer f.Close()
	head := make([]byte, 128)
	n, _ := io.ReadFull(f, head) // most are longer
	_, weight, err := parseHead(string(head[:n]))
	if err != nil {
		return 0
	}
	return weight
}

// evictTree removes a tree that nobody uses.
func (c *Cache) evictTree(key string) bool {
	dir := c.path("trees", key)
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	if !lockExclusive(f) {
		return false
	}
	if c.evicting != nil {
		c.evicting()
	}
	out := c.path("tmp", oldPrefix+filepath.Base(c.temp()))
	if os.Rename(dir, out) != nil {
		return false
	}
	ours, err := f.Stat()
	if err != nil {
		return false
	}
	if moved, err := os.Stat(out); err != nil || !os.SameFile(ours, moved) {
		// Another one came to its place since it was opened, and somebody may use that.
		_ = os.Rename(out, dir) // where there is a third one by now it goes when nobody uses it
		return false
	}
	text, merr := os.ReadFile(filepath.Join(out, "manifest"))
	if err := RemoveAll(out); err != nil {
		c.o.Log.Warn("evicted folder not removed", "dir", out, "err", err)
	}
	if merr == nil {
		c.evictContent(text)
	}
	return true
}

// evictContent removes the contents of a tree that is gone which no other tree has.
func (c *Cache) evictContent(manifest []byte) {
	t, err := berth.ParseTree(manifest)
	if err != nil {
		return // they go when they are old
	}
	for i := range t.Files {
		if f := &t.Files[i]; isKey(f.Hash) {
			if info, err := os.Lstat(c.content(f)); err == nil && links(info) == 1 {
				_ = os.Remove(c.content(f))
			}
		}
	}
}

// sweepTemps removes what processes that have ended left in tmp, and trees that were given up and
// are not used any more.
func (c *Cache) sweepTemps() {
	dead, forget := c.deadOwners() // first: they make nothing more
	defer forget()
	entries, err := os.ReadDir(c.path("tmp"))
	if err != nil {
		return
	}
	for _, e := range entries {
		path := c.path("tmp", e.Name())
		if strings.HasPrefix(e.Name(), oldPrefix) {
			if f, err := os.Open(path); err == nil {
				if lockExclusive(f) {
					_ = RemoveAll(path)
				}
				f.Close()
			}
			continue
		}
		if c.abandoned(e, dead) {
			_ = RemoveAll(path)
		}
	}
}

// sweepContent removes contents that no tree has, and none will have soon.
func (c *Cache) sweepContent() {
	gathered := sync.OnceValue(c.gathered)
	_ = filepath.WalkDir(c.path("content"), func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil //nolint:nilerr // what cannot be read stays
		}
		// One of a place gets its links when all files of that are here.
		info, err := e.Info()
		if err == nil && links(info) == 1 && time.Since(info.ModTime()) > lately && !gathered()[filepath.Base(filepath.Dir(p))+e.Name()] {
			_ = os.Remove(p)
		}
		return nil
	})
}

// sweepNames removes names of trees that are gone, and what is known of places that were not
// fetched from for long.
func (c *Cache) sweepNames() {
	places, _ := os.ReadDir(c.path("places")) // without it there are none
	for _, e := range places {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > unused {
			_ = os.Remove(c.path("places", e.Name()))
		}
	}
	entries, err := os.ReadDir(c.path("names"))
	if err != nil {
		return
	}
	for _, e := range entries {
		p := c.path("names", e.Name())
		if key, err := os.ReadFile(p); err == nil {
			if _, err := os.Stat(c.path("trees", string(key))); err != nil {
				_ = os.Remove(p)
			}
		}
	}
}

// RemoveAll deletes a tree, write-protected folders included.
func RemoveAll(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	// What is left of a task may put a link in the place of a folder meanwhile.
	if root, err := os.OpenRoot(dir); err == nil {
		_ = fs.WalkDir(root.FS(), ".", func(p string, e fs.DirEntry, err error) error {
			if e != nil && e.IsDir() {
				_ = root.Chmod(p, 0o700)
			}
			return nil
		})
		root.Close()
	}
	return os.RemoveAll(dir)
}
