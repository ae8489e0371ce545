package cache

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/berthml/berth"
)

// A tree is looked at in each use: by stat, and by its hash where that shows a difference. Tasks
// have the account of the runner, so any of them could have written to it.

// state is what the files of a tree looked like when they were put there.
type state struct {
	boot   string // the machine's start in which contents were written
	weight int64  // what it takes on the disk
	files  []fileState
}

type fileState struct {
	inode   uint64
	changed int64 // when the kernel last saw a change of it, which nobody can set; nanoseconds
	how     how
}

// seen is what a file looks like: whether it is one, which one it is, and when it was last changed:
// its content, its times or its names.
type seen struct {
	regular bool
	size    int64
	inode   uint64
	changed int64
}

const stateSize = 17 // bytes of a fileState

// recordStat remembers how the files of a tree look. One content may be several of them, so they
// are looked at when all are there.
func (s *state) recordStat(ctx context.Context, root string, t *berth.Tree) error {
	list := all(t)
	return spans(ctx, len(list), func(from, to int) error {
		l := looker{root: root}
		defer l.close()
		for _, i := range list[from:to] {
			seen, err := l.look(t.Files[i].Path)
			if err != nil {
				return err
			}
			s.files[i].inode, s.files[i].changed = seen.inode, seen.changed
		}
		return nil
	})
}

// linked says whether all contents are the server's own.
func (s *state) linked() bool {
	return !slices.ContainsFunc(s.files, func(f fileState) bool { return f.how == copied })
}

func (s *state) save(path string) error {
	b := make([]byte, 0, 128+stateSize*len(s.files))
	b = fmt.Appendf(b, "%s %d\n", s.boot, s.weight)
	for _, f := range s.files {
		b = binary.LittleEndian.AppendUint64(b, f.inode)
		b = binary.LittleEndian.AppendUint64(b, uint64(f.changed))
		b = append(b, byte(f.how))
	}
	return os.WriteFile(path, b, 0o600)
}

func loadState(path string, files int) (*state, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	boot, weight, err := parseHead(string(b))
	_, raw, _ := bytes.Cut(b, []byte{'\n'})
	if err != nil || len(raw) != stateSize*files {
		return nil, errors.New("its state does not match the manifest")
	}
	s := &state{boot: boot, weight: weight, files: make([]fileState, files)}
	for i := range s.files {
		r := raw[i*stateSize:]
		s.files[i] = fileState{binary.LittleEndian.Uint64(r), int64(binary.LittleEndian.Uint64(r[8:])), how(r[16])}
	}
	return s, nil
}

// parseHead reads the first line of a state.
func parseHead(text string) (boot string, weight int64, err error) {
	line, _, ok := strings.Cut(text, "\n")
	boot, number, _ := strings.Cut(line, " ")
	if weight, err = strconv.ParseInt(number, 10, 64); err == nil && !ok {
		err = errors.New("it is truncated")
	}
	return boot, weight, err
}

// weigh is what a tree takes on the disk, without what is the server's.
func (s *state) weigh(t *berth.Tree) {
	s.weight = int64(len(t.Files)) * perFile
	for i, f := range s.files {
		if f.how == copied {
			s.weight += t.Files[i].Size
		}
	}
}

// check looks at a tree before it is used, and says what is wrong with it.
func (c *Cache) check(ctx context.Context, key string, u *Use) (wrong string, err error) {
	dir := filepath.Dir(u.Dir)
	text, err := os.ReadFile(filepath.Join(dir, "manifest"))
	if err == nil {
		sum := make(chan string, 1)
		go func() { sum <- hashOf(text) }() // of a large folder it takes as long as reading it
		u.Tree, err = berth.ParseTree(text)
		if s := <-sum; s != key && hashOf("programs "+s) != key {
			err = errors.New("its manifest was altered")
		}
	}
	var st *state
	if err == nil {
		st, err = loadState(filepath.Join(dir, "state"), len(u.Tree.Files))
	}
	if err != nil {
		return fmt.Sprintf("a cached folder on the node is unusable and will be fetched again: %v", err), nil
	}
	u.Linked, u.Summary = st.linked(), summarize(u.Tree)
	bad, err := c.compare(ctx, u, st)
	if err != nil {
		return "", err
	}
	if len(bad) == 0 {
		c.renewSummary(dir, u.Tree, st)
		return "", nil
	}
	var names []string
	for n, i := range bad {
		c.discard(&u.Tree.Files[i], st.files[i].how)
		if n < 3 {
			names = append(names, u.Tree.Files[i].Path)
		}
	}
	return fmt.Sprintf("%d cached files were altered on the node's disk and will be fetched again: %s", len(bad), strings.Join(names, ", ")), nil
}

// compare finds the files of a tree that are not what they were.
func (c *Cache) compare(ctx context.Context, u *Use, st *state) (bad []int, err error) {
	var mu sync.Mutex
	renew := false
	list := all(u.Tree)
	err = spans(ctx, len(list), func(from, to int) error {
		l := looker{root: u.Dir}
		defer l.close()
		for _, i := range list[from:to] {
			same, ok, err := c.compareFile(&l, u, st, i)
			if err != nil {
				return err
			}
			if same {
				continue
			}
			mu.Lock()
			renew = true
			if !ok {
				bad = append(bad, i)
			}
			mu.Unlock()
		}
		return nil
	})
	if err != nil || len(bad) > 0 {
		slices.Sort(bad)
		return bad, err
	}
	if renew {
		st.boot = c.boot
		tmp := c.temp()
		if st.save(tmp) == nil {
			_ = os.Rename(tmp, filepath.Join(filepath.Dir(u.Dir), "state"))
		}
	}
	return nil, nil
}

// compareFile looks at one file: whether it looks the same as when it was put there, and if not,
// whether its content is what it was.
func (c *Cache) compareFile(l *looker, u *Use, st *state, i int) (same, ok bool, err error) {
	f, s := &u.Tree.Files[i], &st.files[i]
	seen, err := l.look(f.Path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	if !seen.regular || seen.size != f.Size {
		return false, false, nil
	}
	if seen.inode == s.inode && seen.changed == s.changed && (st.boot == c.boot || s.how == linked) {
		return true, true, nil
	}
	_, sum, err := sumFile(filepath.Join(u.Dir, filepath.FromSlash(f.Path)))
	if err != nil || sum != f.Hash {
		return false, false, nil //nolint:nilerr // it is fetched again
	}
	s.inode, s.changed = seen.inode, seen.changed
	return false, true, nil
}

// discard removes a content of the cache that is not what its name says. The server's own is left
// to the server, and hashed from now on.
func (c *Cache) discard(f *berth.TreeFile, h how) {
	if h == copied {
		_ = os.Remove(c.content(f))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suspect[f.Hash] = true
	if err := os.WriteFile(c.path("suspect", f.Hash), nil, 0o600); err != nil {
		c.o.Log.Warn("an altered object is remembered until the next start only", "hash", f.Hash, "err", err)
	}
}

func (c *Cache) suspected(hash string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.suspect[hash]
}

// discardTree takes a tree that was found altered out of the way of those who come next. Who uses
// it keeps it. Where another one is in its place by now, that stays.
func (c *Cache) discardTree(key string, u *Use, why string) error {
	c.o.Log.Warn("cached folder discarded", "tree", key, "why", why)
	if err := c.prepare(); err != nil {
		return err
	}
	ours, err := u.hold.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(c.path("trees", key))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(ours, there) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Rename(c.path("trees", key), c.path("tmp", oldPrefix+filepath.Base(c.temp())))
}
