// Package cache keeps on a node what its tasks read: whole folders by the hash of their manifest,
// and the contents they are made of.
//
// Below the cache's directory:
//
//	trees/KEY/          a folder that was brought here whole, by its manifest and whether its programs are executable: "manifest", "state", "summary", and "files" with the folder itself
//	names/NAME          which tree a version of a place is
//	places/NAME         the hashes of the files of a place in storage that knows none, by the tags that it gives them
//	content/ab/cdef…    contents by their SHA-256, of which trees have links; where the server's own disk is here, its objects are used instead
//	suspect/HASH        objects of the server that were found altered: they are hashed before they are used
//	owners/NAME         a file that is locked as long as one lives that makes things in tmp
//	tmp/                what is being made, and trees that were given up
//
// A tree appears by a rename and is never changed afterwards, so a process that is killed leaves
// nothing but a folder in tmp. Nothing is synced: all of it can be fetched again, and contents that
// were written before the machine last started are hashed before they are used. Who uses a tree has
// its directory open with a shared flock, which a command inherits, so that not even the end of the
// runner lets eviction take it. Several processes may share one cache.
package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthml/berth"
)

// Options adjust a Cache. The zero value is good.
type Options struct {
	// Bytes is how much is kept, of what the cache has copies of; 0 means a fifth of the disk.
	Bytes int64
	// Protect keeps the account itself from writing to trees by their permissions: for tasks that
	// see them as they are.
	Protect bool
	// CheckFirst is the number of files up to which a tree is always checked before it is used; 0
	// means 5000.
	CheckFirst int
	Log        *slog.Logger
}

// Cache is a directory of trees. It is safe for concurrent use.
type Cache struct {
	dir   string
	o     Options
	boot  string
	count atomic.Int64 // of names in tmp
	owner string       // what they begin with

	owning sync.Mutex
	life   *os.File // the file of the owner; nil where that cannot be locked

	mu       sync.Mutex
	making   map[string]*making  // by key of the tree
	verdicts map[string]*verdict // checks that have not begun, by key of the tree
	suspect  map[string]bool     // by hash
	looking  map[string]*sync.Mutex
	behind   sync.WaitGroup // what goes on in the background: evictions and checks
	evicted  atomic.Bool    // one is under way
	evicting func()         // for tests: somebody else is faster than an eviction
	tending  time.Duration  // how often work on a place shows
	ctx      context.Context
	stop     context.CancelFunc // ends checks
}

// making is a tree on its way; done is closed when it is there or failed.
type making struct {
	done chan struct{}
	err  error
}

// Open opens the cache in dir, which is made when it does not exist.
func Open(dir string, o Options) (*Cache, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.CheckFirst <= 0 {
		o.CheckFirst = 5000
	}
	c := &Cache{
		dir: dir, o: o, boot: bootID(), owner: newOwner(), tending: lately / 6,
		making: map[string]*making{}, verdicts: map[string]*verdict{}, suspect: map[string]bool{}, looking: map[string]*sync.Mutex{},
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	if err := c.prepare(); err != nil {
		return nil, err
	}
	suspects, err := os.ReadDir(c.path("suspect"))
	if err != nil {
		return nil, fmt.Errorf("opening the cache: %w", err)
	}
	for _, e := range suspects {
		c.suspect[e.Name()] = true
	}
	c.sweepTemps()
	return c, nil
}

// Close ends checks, and waits for an eviction under way.
func (c *Cache) Close() {
	c.stop()
	c.behind.Wait()
	c.disown()
}

// evictSoon evicts in the background, unless that is under way.
func (c *Cache) evictSoon() {
	if c.evicted.Swap(true) {
		return
	}
	c.behind.Go(func() {
		defer c.evicted.Store(false)
		c.Evict()
	})
}

// Protects says whether trees are write-protected by their permissions.
func (c *Cache) Protects() bool { return c.o.Protect }

// prepare makes the directories; somebody may have deleted them.
func (c *Cache) prepare() error {
	for _, d := range []string{"trees", "names", "places", "content", "suspect", "owners", "tmp"} {
		if err := os.MkdirAll(filepath.Join(c.dir, d), 0o700); err != nil {
			return fmt.Errorf("opening the cache: %w", err)
		}
	}
	if err := c.own(); err != nil {
		return fmt.Errorf("opening the cache: %w", err)
	}
	return nil
}

func (c *Cache) path(parts ...string) string {
	return filepath.Join(append([]string{c.dir}, parts...)...)
}

// temp is a new name in tmp, which other processes do not use either.
func (c *Cache) temp() string {
	return c.path("tmp", c.owner+"-"+strconv.FormatInt(c.count.Add(1), 36))
}

// Source is where a tree comes from.
type Source struct {
	// Name is the version token of the place; empty when there is none, and the manifest has to be
	// asked for.
	Name string
	// Objects is a directory of this machine with contents by their SHA-256; empty where there is
	// none.
	Objects string
	// Early takes a large tree that is here before its files are checked. The caller only reads it,
	// and calls [Use.Check] before it says that what it made of it is good.
	Early bool
	// Programs makes the programs of the tree executable. The same tree without that is another.
	Programs bool
	// Manifest asks for the text of the manifest.
	Manifest func(ctx context.Context) ([]byte, error)
	// Fetch brings contents: file i of the tree, of those in want, to the path that to gives. It
	// checks nothing.
	Fetch func(ctx context.Context, t *berth.Tree, want []int, to func(i int) string) error
}

// Use is a tree in use. Close it when the task has ended.
type Use struct {
	Summary
	Tree   *berth.Tree // nil where it is used early, until [Use.Check]
	Key    string      // names the tree
	Dir    string      // the folder
	Cached bool        // it was here already
	Linked bool        // its contents are the server's own, where it was checked
	Early  bool        // it was not checked yet
	// Warnings are what people should know: that something was found altered and was fetched again.
	Warnings []string
	hold     *os.File
	was      Was // the folder, when it was taken
	cache    *Cache
}

// Hold is the open file that keeps the tree here, for a command to inherit.
func (u *Use) Hold() *os.File { return u.hold }

// deletedInUse says that the folder of a tree is not there any more, or is another one.
const deletedInUse = "the cached folder was deleted or discarded on the node while the command ran"

// Was is what the folder of a tree looked like when a task took it. Its text is for a runner that
// takes the task up.
type Was struct {
	inode    uint64
	modified int64 // nanoseconds
}

func (w Was) String() string { return fmt.Sprintf("%d %d", w.inode, w.modified) }

// ParseWas reads what Was wrote.
func ParseWas(text string) (w Was, err error) {
	_, err = fmt.Sscanf(text, "%d %d", &w.inode, &w.modified)
	return w, err
}

func lookAt(dir string) (Was, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return Was{}, err
	}
	return Was{inode(info), info.ModTime().UnixNano()}, nil
}

// Was is what the folder looked like when it was taken.
func (u *Use) Was() Was { return u.was }

// Lost says what became of the folder of a tree that a task took and read as it is: it was deleted,
// or names in it were; empty where it is as it was. Folders below it are not looked at.
func (c *Cache) Lost(key string, was Was) string {
	now, err := lookAt(c.path("trees", key, "files"))
	switch {
	case err != nil || was == Was{} || now.inode != was.inode:
		return deletedInUse
	case now.modified != was.modified:
		return "names in the cached folder were added or deleted on the node while the command ran"
	}
	return ""
}

// Close lets eviction take the tree.
func (u *Use) Close() {
	if u != nil && u.hold != nil {
		u.hold.Close()
		u.hold = nil
	}
}

// Get brings a tree here unless it is, and checks it.
func (c *Cache) Get(ctx context.Context, src Source) (*Use, error) {
	var warnings []string
	if src.Programs && src.Name != "" {
		src.Name = "programs " + src.Name
	}
	if src.Name != "" {
		if key, err := os.ReadFile(c.path("names", hashOf(src.Name))); err == nil && isKey(string(key)) {
			if u, err := c.open(ctx, string(key), src.Early, &warnings); u != nil || err != nil {
				return u, err
			}
		}
	}
	text, err := src.Manifest(ctx)
	if err != nil {
		return nil, err
	}
	t, err := berth.ParseTree(text)
	if err != nil {
		return nil, err
	}
	key := keyOf(text, src.Programs)
	tried := false
	for range 8 { // it may be taken away between being made and being opened
		u, err := c.open(ctx, key, false, &warnings)
		if err != nil {
			return nil, err
		}
		if u == nil {
			b, err := c.make(ctx, key, text, t, src)
			if !tried && ctx.Err() == nil && c.afterFull(err, t.Bytes()) {
				tried = true
				continue
			}
			if err != nil {
				return nil, err
			}
			if !b.fresh {
				continue // another one made it: it is checked
			}
			if u, err = c.hold(key); err != nil {
				return nil, err
			}
			if u == nil {
				continue
			}
			u.Tree, u.Linked, u.Summary = t, b.linked, summarize(t)
			c.evictSoon()
		}
		u.Warnings = warnings
		c.name(src.Name, key)
		return u, nil
	}
	return nil, berth.Errorf(berth.Unavailable, "the cache in %s is deleted repeatedly", c.dir)
}

// name remembers which tree a name stands for. It is not needed: a name that is not known is asked
// for.
func (c *Cache) name(name, key string) {
	if name == "" {
		return
	}
	tmp := c.temp()
	if err := os.WriteFile(tmp, []byte(key), 0o600); err != nil {
		c.o.Log.Warn("tree name not saved", "err", err)
		return
	}
	if err := os.Rename(tmp, c.path("names", hashOf(name))); err != nil {
		c.o.Log.Warn("tree name not saved", "err", err)
	}
}

// Hold keeps a tree that is in use, for a runner that takes up the task of an earlier one; nil when
// it is not there any more.
func (c *Cache) Hold(key string) *Use {
	if !isKey(key) {
		return nil
	}
	u, err := c.hold(key)
	if err != nil {
		return nil
	}
	return u
}

// hold opens a tree and keeps it from being taken; nil when it is not there.
func (c *Cache) hold(key string) (*Use, error) {
	dir := c.path("trees", key)
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ok, err := lockShared(f)
	if err != nil || !ok {
		f.Close()
		return nil, err // it is just being taken
	}
	here, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if there, err := os.Stat(dir); err != nil || !os.SameFile(here, there) { // it was taken in between
		f.Close()
		return nil, nil //nolint:nilerr // then it is not there
	}
	was, err := lookAt(filepath.Join(dir, "files"))
	if err != nil {
		was = Was{} // whoever checks the tree finds out
	}
	if time.Since(here.ModTime()) > time.Minute { // eviction takes the one that was used longest ago
		now := time.Now()
		_ = os.Chtimes(dir, now, now)
	}
	return &Use{Key: key, Dir: filepath.Join(dir, "files"), hold: f, was: was, cache: c}, nil
}

// open is a tree that is here, after a look at it; nil when it is not, or was altered and is
// discarded, of which it warns. One tree is looked at by one at a time. A large one that is wanted
// early is not looked at.
func (c *Cache) open(ctx context.Context, key string, early bool, warnings *[]string) (*Use, error) {
	if early {
		if u, err := c.openEarly(key); u != nil || err != nil {
			return u, err
		}
	}
	mu := c.lockOf(key)
	mu.Lock()
	defer mu.Unlock()
	u, err := c.hold(key)
	if u == nil || err != nil {
		return nil, err
	}
	u.Cached = true
	wrong, err := c.check(ctx, key, u)
	if err == nil && wrong == "" {
		return u, nil
	}
	defer u.Close()
	if err == nil {
		*warnings = append(*warnings, wrong)
		err = c.discardTree(key, u, wrong)
	}
	return nil, err
}

// lockOf is what those who look at a tree take.
func (c *Cache) lockOf(key string) *sync.Mutex {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looking[key] == nil {
		c.looking[key] = new(sync.Mutex)
	}
	return c.looking[key]
}

// make brings a tree here, once for all who want it at the same time.
func (c *Cache) make(ctx context.Context, key string, text []byte, t *berth.Tree, src Source) (b built, err error) {
	for {
		c.mu.Lock()
		m := c.making[key]
		if m == nil {
			m = &making{done: make(chan struct{})}
			c.making[key] = m
			c.mu.Unlock()
			b, m.err = c.build(ctx, key, text, t, src)
			c.mu.Lock()
			delete(c.making, key)
			c.mu.Unlock()
			close(m.done)
			return b, m.err
		}
		c.mu.Unlock()
		select {
		case <-m.done:
		case <-ctx.Done():
			return b, context.Cause(ctx)
		}
		if m.err == nil {
			return b, nil
		} // another one's failure may be its own: its rights, its end
	}
}

func hashOf[T string | []byte](s T) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// keyOf names the tree of a manifest. With its programs executable it is another tree.
func keyOf(manifest []byte, programs bool) string {
	if programs {
		return hashOf("programs " + hashOf(manifest))
	}
	return hashOf(manifest)
}

func isKey(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size
}
