// Package stream shows files that are elsewhere as a folder of this machine: what a process reads
// of them is fetched then, with read-ahead, and kept in memory for a short while. It takes FUSE.
package stream

import (
	"container/list"
	"context"
	"os"
	"path"
	"strings"
	"sync"
)

// File is a file elsewhere.
type File struct {
	Path string // below the folder, with slashes; that of a folder ends with one
	Size int64
}

// Fetch fills p with the bytes of file i from off on.
type Fetch func(ctx context.Context, i int, off int64, p []byte) error

const (
	// block is how much is fetched at once.
	block = 1 << 20
	// ahead is how many blocks are fetched before they are asked for, at most, by one who reads
	// from front to back.
	ahead = 16
	// parallel is how many are fetched at the same time for one tree, and kept how many stay in
	// memory for all of them.
	parallel = 4
	kept     = 256
)

// Tree is a folder of such files. It is safe for concurrent use.
type Tree struct {
	nodes []node // that of the folder itself is first
	fetch Fetch
	told  func(error) // of what could not be fetched
	local func(i int) (*os.File, error)

	ctx   context.Context // of fetches
	end   context.CancelFunc
	turns chan struct{}
}

// memory is the blocks of all trees of this process: they share one limit.
var memory = struct {
	mu     sync.Mutex
	blocks map[key]*list.Element // of *content
	recent *list.List            // the one used last is first
}{blocks: map[key]*list.Element{}, recent: list.New()}

// node is a file or a folder.
type node struct {
	name     string
	file     int // of the files; -1 for a folder
	size     int64
	children []int
	byName   map[string]int
}

type key struct {
	t           *Tree
	file, block int
}

// content is a block that is there, or on its way.
type content struct {
	key   key
	ready chan struct{}
	data  []byte
	err   error
}

// New makes a tree. told is called with what could not be fetched; it may be nil.
func New(files []File, fetch Fetch, told func(error)) *Tree {
	t := &Tree{
		fetch: fetch, told: told, turns: make(chan struct{}, parallel),
		nodes: []node{{file: -1, byName: map[string]int{}}},
	}
	t.ctx, t.end = context.WithCancel(context.Background())
	for i, f := range files {
		dir, name := path.Split(strings.TrimSuffix(f.Path, "/"))
		at := t.folder(strings.TrimSuffix(dir, "/"))
		if strings.HasSuffix(f.Path, "/") {
			t.folder(strings.TrimSuffix(f.Path, "/"))
			continue
		}
		t.add(at, node{name: name, file: i, size: f.Size})
	}
	return t
}

// Local has files that are on this machine read where they are; open opens file i, and fails for
// one that has to be fetched. It is called before Mount.
func (t *Tree) Local(open func(i int) (*os.File, error)) { t.local = open }

// Close ends what is being fetched, and forgets what was.
func (t *Tree) Close() {
	t.end()
	memory.mu.Lock()
	defer memory.mu.Unlock()
	for k, e := range memory.blocks {
		if k.t == t {
			drop(e)
		}
	}
}

// folder is the node of a folder, which is made where it is not there.
func (t *Tree) folder(p string) int {
	at := 0
	if p == "" {
		return at
	}
	for name := range strings.SplitSeq(p, "/") {
		next, ok := t.nodes[at].byName[name]
		if !ok {
			next = t.add(at, node{name: name, file: -1, byName: map[string]int{}})
		}
		at = next
	}
	return at
}

func (t *Tree) add(parent int, n node) int {
	i := len(t.nodes)
	t.nodes = append(t.nodes, n)
	t.nodes[parent].children = append(t.nodes[parent].children, i)
	t.nodes[parent].byName[n.name] = i
	return i
}

// reader is a file that somebody has open.
type reader struct {
	t    *Tree
	n    *node
	file *os.File // where it is on this machine; nil where it is fetched

	mu   sync.Mutex
	last int // the block that was read last
	far  int // how far is read ahead
}

func (t *Tree) open(n *node) *reader {
	r := &reader{t: t, n: n, last: -1}
	if t.local != nil {
		if f, err := t.local(n.file); err == nil {
			r.file = f
		}
	}
	return r
}

func (r *reader) close() {
	if r.file != nil {
		r.file.Close()
	}
}

// readAt fills p as far as the file goes. It ends early when cancel is closed.
func (r *reader) readAt(cancel <-chan struct{}, p []byte, off int64) (n int, err error) {
	for n < len(p) && off+int64(n) < r.n.size {
		at := off + int64(n)
		b := int(at / block)
		c := r.t.get(key{r.t, r.n.file, b}, r.n.size)
		r.advance(b)
		select {
		case <-c.ready:
		case <-cancel:
			return n, context.Canceled
		}
		if c.err != nil {
			return n, c.err
		}
		n += copy(p[n:], c.data[at-int64(b)*block:])
	}
	return n, nil
}

// advance has what comes after block b fetched where the file is read from front to back: each
// block that is read in its turn doubles how far.
func (r *reader) advance(b int) {
	r.mu.Lock()
	switch b {
	case r.last:
		r.mu.Unlock()
		return
	case r.last + 1:
		r.far = min(max(2*r.far, 1), ahead)
	default:
		r.far = 0
	}
	r.last = b
	far := r.far
	r.mu.Unlock()
	for i := 1; i <= far && int64(b+i)*block < r.n.size; i++ {
		r.t.get(key{r.t, r.n.file, b + i}, r.n.size)
	}
}

// get is a block of a file of this size, which is fetched unless it is there.
func (t *Tree) get(k key, size int64) *content {
	memory.mu.Lock()
	defer memory.mu.Unlock()
	if e, ok := memory.blocks[k]; ok {
		memory.recent.MoveToFront(e)
		return e.Value.(*content)
	}
	for e := memory.recent.Back(); e != nil && len(memory.blocks) >= kept; e = memory.recent.Back() {
		drop(e)
	}
	c := &content{key: k, ready: make(chan struct{})}
	e := memory.recent.PushFront(c)
	memory.blocks[k] = e
	go t.fill(e, c, size)
	return c
}

// drop forgets a block; who waits for it gets it still. The mutex is held.
func drop(e *list.Element) {
	c := e.Value.(*content)
	if memory.blocks[c.key] == e {
		delete(memory.blocks, c.key)
		memory.recent.Remove(e)
	}
}

// fill fetches a block. What could not be fetched is tried again by who asks next.
func (t *Tree) fill(e *list.Element, c *content, size int64) {
	defer close(c.ready)
	select {
	case t.turns <- struct{}{}:
		defer func() { <-t.turns }()
	case <-t.ctx.Done():
		c.err = t.ctx.Err()
		return
	}
	off := int64(c.key.block) * block
	c.data = make([]byte, min(block, size-off))
	if c.err = t.fetch(t.ctx, c.key.file, off, c.data); c.err == nil {
		return
	}
	memory.mu.Lock()
	drop(e)
	memory.mu.Unlock()
	if t.told != nil && t.ctx.Err() == nil {
		t.told(c.err)
	}
}
