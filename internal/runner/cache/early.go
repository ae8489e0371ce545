package cache

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/berthml/berth"
)

// To look at every file of a large tree takes longer than a task should wait. A task that only
// reads such a tree begins before that and checks it while it runs: [Source.Early], [Use.Check].

// Summary is what is known of a tree without reading its manifest.
type Summary struct {
	Files   int
	Bytes   int64
	Single  bool
	Skipped []string
}

func summarize(t *berth.Tree) Summary {
	return Summary{Files: len(t.Files), Bytes: t.Bytes(), Single: t.Single, Skipped: t.Skipped}
}

func (s Summary) equal(o Summary) bool {
	return s.Files == o.Files && s.Bytes == o.Bytes && s.Single == o.Single && slices.Equal(s.Skipped, o.Skipped)
}

// summary is the file "summary" of a tree.
type summary struct {
	Summary
	Boot string // as that of its state; empty where contents are the server's own, which are synced
}

func newSummary(t *berth.Tree, st *state) summary {
	s := summary{Summary: summarize(t), Boot: st.boot}
	if st.linked() {
		s.Boot = ""
	}
	return s
}

func (s summary) save(path string) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

// loadSummary reads the summary of a tree; false where it cannot be used before it is checked.
func (c *Cache) loadSummary(dir string) (s summary, ok bool) {
	b, err := os.ReadFile(filepath.Join(dir, "summary"))
	if err != nil || json.Unmarshal(b, &s) != nil {
		return s, false
	}
	return s, s.Files > c.o.CheckFirst && (s.Boot == "" || s.Boot == c.boot)
}

// renewSummary writes the summary of a tree that was found good, where it has none or an old one.
func (c *Cache) renewSummary(dir string, t *berth.Tree, st *state) {
	want := newSummary(t, st)
	if have, _ := c.loadSummary(dir); have.equal(want.Summary) && have.Boot == want.Boot {
		return
	}
	tmp := c.temp()
	if want.save(tmp) == nil {
		_ = os.Rename(tmp, filepath.Join(dir, "summary")) // without it the tree is checked first
	}
}

// verdict is one look at a tree for all who asked for it before it began.
type verdict struct {
	done  chan struct{}
	of    fs.FileInfo // the directory that was looked at; nil when there was none
	tree  *berth.Tree
	wrong string
	err   error
}

// Check looks at a tree that is used before it was checked, and says what is wrong with it; whoever
// asks for the tree next gets a good one. Uses of a tree share checks. It does nothing for other
// trees.
func (u *Use) Check(ctx context.Context) (wrong string, err error) {
	if !u.Early {
		return "", nil
	}
	ours, err := u.hold.Stat()
	if err != nil {
		return "", err
	}
	v := u.cache.judge(u.Key)
	select {
	case <-v.done:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	switch {
	case v.err != nil:
		return "", v.err
	case v.of == nil || !os.SameFile(ours, v.of):
		return deletedInUse, nil
	case v.wrong == "" && u.Files > 0 && !u.equal(summarize(v.tree)):
		return "the summary of a cached folder was altered on the node's disk", nil
	case v.wrong == "":
		u.Tree = v.tree
	}
	return v.wrong, nil
}

// judge is a check of a tree that begins from now on.
func (c *Cache) judge(key string) *verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.verdicts[key]; v != nil {
		return v // it waits for one under way
	}
	v := &verdict{done: make(chan struct{})}
	c.verdicts[key] = v
	c.behind.Go(func() {
		defer close(v.done)
		mu := c.lockOf(key)
		mu.Lock()
		defer mu.Unlock()
		c.mu.Lock()
		delete(c.verdicts, key)
		c.mu.Unlock()
		u, err := c.hold(key)
		if u == nil || err != nil {
			v.err = err
			return
		}
		defer u.Close()
		if v.of, v.err = u.hold.Stat(); v.err != nil {
			return
		}
		v.wrong, v.err = c.check(c.ctx, key, u)
		v.tree = u.Tree
		if v.err == nil && v.wrong != "" {
			v.err = c.discardTree(key, u, v.wrong)
		}
	})
	return v
}

// Recheck is [Use.Check] for a tree that a task of an earlier process used.
func (c *Cache) Recheck(ctx context.Context, key string) (wrong string, err error) {
	u := c.Hold(key)
	if u == nil {
		return "a cached folder was removed from the node before it could be checked", nil
	}
	defer u.Close()
	u.Early = true
	return u.Check(ctx)
}

// openEarly takes a large tree without looking at its files.
func (c *Cache) openEarly(key string) (*Use, error) {
	u, err := c.hold(key)
	if u == nil || err != nil {
		return nil, err
	}
	s, ok := c.loadSummary(filepath.Dir(u.Dir))
	if !ok {
		u.Close()
		return nil, nil
	}
	u.Summary, u.Cached, u.Early = s.Summary, true, true
	return u, nil
}
