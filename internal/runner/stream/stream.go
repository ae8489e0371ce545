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
	"time"
)

// File is a file elsewhere.
type File struct {
	Path string // below the folder, with slashes; that of a folder ends with one
	Size int64
}

// Fetch fills the blocks p, of equal size but for the last, with the bytes of file i from off on.
// As soon as one is full it may call came with how many are.
type Fetch func(ctx context.Context, i int, off int64, p [][]byte, came func(n int)) error

const (
	// block is how much is fetched and kept at least.
	block = 1 << 20
	// ahead is how many blocks are fetched before they are asked for, at most, by one who reads
	// from front to back, and run how many at once: each request costs the storage something.
	ahead = 16
	run   = 8
	// near says how far from the last block the next one may be: requests overtake each other.
	near = 4
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
	free   [][]byte              // of blocks that were dropped
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
	users int // who reads or fills it: until they are done, its memory is not another one's
	gone  bool
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
	if len(memory.blocks) == 0 { // unless another one comes, which would have them again
		time.AfterFunc(linger, func() {
			memory.mu.Lock()
			defer memory.mu.Unlock()
			if len(memory.blocks) == 0 {
				memory.free = nil
			}
		})
	}
}

// linger is for how long memory stays for the next tree.
const linger = 10 * time.Second

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
	to   int // up to which block that was done
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
		c := r.t.use(key{r.t, r.n.file, b}, r.n.size)
		r.advance(b)
		select {
		case <-c.ready:
			if err = c.err; err == nil {
				n += copy(p[n:], c.data[at-int64(b)*block:])
			}
		case <-cancel:
			err = context.Canceled
		}
		release(c)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// advance has what comes after block b fetched where the file is read from front to back: each
// block that is read about in its turn doubles how far. More is asked for when half of it was read,
// so that it comes in few requests.
func (r *reader) advance(b int) {
	r.mu.Lock()
	switch {
	case b <= r.last && b > r.last-near:
		r.mu.Unlock()
		return
	case b > r.last && b <= r.last+near:
		r.far = min(max(2*r.far, 1), ahead)
	default:
		r.far, r.to = 0, b
	}
	r.last = b
	from, to := max(r.to, b)+1, min(b+r.far, int((r.n.size-1)/block))
	if r.to-b > r.far/2 || to < from {
		r.mu.Unlock()
		return
	}
	r.to = to
	r.mu.Unlock()
	memory.mu.Lock()
	defer memory.mu.Unlock()
	for from <= to {
		var list []*content
		for ; from <= to && len(list) < run; from++ {
			c, fresh := r.t.get(key{r.t, r.n.file, from})
			if fresh {
				list = append(list, c)
			} else if len(list) > 0 {
				break
			}
		}
		r.t.begin(list, r.n.size)
	}
}

// use is a block of a file of this size, which is fetched unless it is there. Whoever uses it
// releases it.
func (t *Tree) use(k key, size int64) *content {
	memory.mu.Lock()
	defer memory.mu.Unlock()
	c, fresh := t.get(k)
	c.users++
	if fresh {
		t.begin([]*content{c}, size)
	}
	return c
}

// get is a block, which has to be begun if it is fresh. The mutex is held.
func (t *Tree) get(k key) (c *content, fresh bool) {
	if e, ok := memory.blocks[k]; ok {
		memory.recent.MoveToFront(e)
		return e.Value.(*content), false
	}
	for e := memory.recent.Back(); e != nil && len(memory.blocks) >= kept; e = memory.recent.Back() {
		drop(e)
	}
	c = &content{key: k, ready: make(chan struct{})}
	memory.blocks[k] = memory.recent.PushFront(c)
	return c, true
}

// begin has blocks fetched that follow each other. The mutex is held.
func (t *Tree) begin(list []*content, size int64) {
	if len(list) == 0 {
		return
	}
	for _, c := range list {
		c.users++
	}
	go t.fill(list, size)
}

// drop forgets a block; who waits for it gets it still. The mutex is held.
func drop(e *list.Element) {
	c := e.Value.(*content)
	if memory.blocks[c.key] == e {
		delete(memory.blocks, c.key)
		memory.recent.Remove(e)
		c.gone = true
		recycle(c)
	}
}

// release says that a block is not used any more by one who did.
func release(c *content) {
	memory.mu.Lock()
	defer memory.mu.Unlock()
	c.users--
	recycle(c)
}

// recycle keeps the memory of a block that nobody will ask for: what is left to the collector stays
// for as long as there is as much of it again. The mutex is held.
func recycle(c *content) {
	if c.gone && c.users == 0 && len(c.data) == block && len(memory.blocks) > 0 && len(memory.free) < kept {
		memory.free = append(memory.free, c.data)
		c.data = nil
	}
}

// room is the memory of a block.
func room(n int64) []byte {
	memory.mu.Lock()
	defer memory.mu.Unlock()
	if last := len(memory.free) - 1; last >= 0 && n == block {
		b := memory.free[last]
		memory.free = memory.free[:last]
		return b
	}
	return make([]byte, n)
}

// fill fetches blocks. What could not be fetched is tried again by who asks next.
func (t *Tree) fill(list []*content, size int64) {
	full := 0
	came := func(n int) {
		for ; full < n; full++ {
			close(list[full].ready)
			release(list[full])
		}
	}
	err := t.fetchRun(list, size, came)
	if err == nil {
		came(len(list))
		return
	}
	for _, c := range list[full:] {
		c.err = err
		close(c.ready)
		memory.mu.Lock()
		c.users--
		if e, ok := memory.blocks[c.key]; ok && e.Value.(*content) == c {
			drop(e)
		}
		recycle(c)
		memory.mu.Unlock()
	}
	if t.told != nil && t.ctx.Err() == nil {
		t.told(err)
	}
}

// fetchRun fetches blocks when it is their turn.
func (t *Tree) fetchRun(list []*content, size int64, came func(n int)) error {
	select {
	case t.turns <- struct{}{}:
		defer func() { <-t.turns }()
	case <-t.ctx.Done():
		return t.ctx.Err()
	}
	off := int64(list[0].key.block) * block
	p := make([][]byte, len(list))
	for i, c := range list {
		c.data = room(min(block, size-off-int64(i)*block))
		p[i] = c.data
	}
	return t.fetch(t.ctx, list[0].key.file, off, p, came)
}
