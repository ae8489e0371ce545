package sched

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
)

// Gang is the tasks of one attempt at a job, which start together or not at all: one task per node.
type Gang struct {
	ID       string // of its own among all gangs
	Name     string // the job's, for sentences; the ID where it is empty
	Nodes    int    // how many nodes, one task on each; at least 1
	User     string
	Priority int   // higher goes first
	Seq      int64 // order of submission: smaller goes first among equals
	Spot     bool  // may be stopped for work of higher priority
	// Limit is how long it can run at most; 0 when nobody knows.
	Limit time.Duration
}

func (g *Gang) name() string { return cmp.Or(g.Name, g.ID) }

// before is the order among gangs of one user and one priority.
func (g *Gang) before(h *Gang) int {
	return cmp.Or(cmp.Compare(g.Seq, h.Seq), strings.Compare(g.ID, h.ID))
}

// Queue holds the gangs that wait for one pool, in the order in which they should run: by priority, then fairly between users
// (who has the fewest nodes goes first), then by Seq. It is not safe for concurrent use. The zero Queue is empty.
type Queue struct {
	gangs  map[string]*Gang
	levels []*level // by priority, highest first; none is empty
	sizes  map[int]int
}

// level is the gangs of one priority.
type level struct {
	priority int
	gangs    int
	users    map[string]*line
	lines    []*line // the same, in no order that means anything
}

// line is the gangs of one user and one priority, by Seq. Most come at its end and leave at its front.
type line struct {
	user  string
	at    int // in level.lines
	nodes int // of all its gangs
	all   []*Gang
	front int // all[:front] is free room: a gang that was preempted comes back to its place
}

// Add puts a gang in its place. An ID that is there already has no effect.
func (q *Queue) Add(g Gang) {
	if _, ok := q.gangs[g.ID]; ok {
		return
	}
	g.Nodes = max(g.Nodes, 1)
	q.insert(&g)
}

// Remove takes a gang out and says whether it was there.
func (q *Queue) Remove(id string) bool {
	g, ok := q.gangs[id]
	if !ok {
		return false
	}
	q.take(g)
	return true
}

// Get is the gang with that ID.
func (q *Queue) Get(id string) (Gang, bool) {
	if g, ok := q.gangs[id]; ok {
		return *g, true
	}
	return Gang{}, false
}

// Len is how many gangs wait.
func (q *Queue) Len() int { return len(q.gangs) }

// IDs are those of all gangs that wait, in no order.
func (q *Queue) IDs() iter.Seq[string] { return maps.Keys(q.gangs) }

// Sizes is how many gangs wait, by the number of nodes they need. The caller may keep it.
func (q *Queue) Sizes() map[int]int {
	m := make(map[int]int, len(q.sizes))
	for nodes, gangs := range q.sizes {
		m[nodes] = gangs
	}
	return m
}

// SizesWithin is Sizes without the gangs whose users may have no more, and the user of the first that is left.
func (q *Queue) SizesWithin(held map[string]int, bars map[string]Bar) (sizes map[int]int, first string) {
	sizes = map[int]int{}
	given := map[string]int{}
	for g := range q.All(held) {
		if bar, ok := bars[g.User]; ok {
			if given[g.User]+g.Nodes > bar.Nodes {
				continue
			}
			given[g.User] += g.Nodes
		}
		if len(sizes) == 0 {
			first = g.User
		}
		sizes[g.Nodes]++
	}
	return sizes, first
}

// Users are those whose gangs wait, in no order.
func (q *Queue) Users() (all []string) {
	seen := map[string]bool{}
	for _, l := range q.levels {
		for _, u := range l.lines {
			if !seen[u.user] {
				seen[u.user] = true
				all = append(all, u.user)
			}
		}
	}
	return all
}

func (q *Queue) insert(g *Gang) {
	if q.gangs == nil {
		q.gangs, q.sizes = map[string]*Gang{}, map[int]int{}
	}
	q.gangs[g.ID] = g
	q.sizes[g.Nodes]++
	i, ok := q.level(g.Priority)
	if !ok {
		q.levels = slices.Insert(q.levels, i, &level{priority: g.Priority, users: map[string]*line{}})
	}
	l := q.levels[i]
	l.gangs++
	u := l.users[g.User]
	if u == nil {
		u = &line{user: g.User, at: len(l.lines)}
		l.users[g.User] = u
		l.lines = append(l.lines, u)
	}
	u.insert(g)
}

// take removes a gang that is there.
func (q *Queue) take(g *Gang) {
	delete(q.gangs, g.ID)
	if q.sizes[g.Nodes]--; q.sizes[g.Nodes] == 0 {
		delete(q.sizes, g.Nodes)
	}
	i, _ := q.level(g.Priority)
	l := q.levels[i]
	if l.gangs--; l.gangs == 0 {
		q.levels = slices.Delete(q.levels, i, i+1)
		return
	}
	u := l.users[g.User]
	if u.take(g); len(u.gangs()) > 0 {
		return
	}
	delete(l.users, g.User)
	last := len(l.lines) - 1
	l.lines[u.at] = l.lines[last]
	l.lines[u.at].at = u.at
	l.lines[last] = nil
	l.lines = l.lines[:last]
}

func (q *Queue) level(priority int) (int, bool) {
	return slices.BinarySearchFunc(q.levels, priority, func(l *level, p int) int { return cmp.Compare(p, l.priority) })
}

// gangs are those that wait, in order.
func (u *line) gangs() []*Gang { return u.all[u.front:] }

func (u *line) find(g *Gang) int {
	list := u.gangs()
	switch n := len(list); {
	case n == 0 || list[0].before(g) >= 0:
		return 0
	case list[n-1].before(g) < 0:
		return n
	}
	i, _ := slices.BinarySearchFunc(list, g, (*Gang).before)
	return i
}

func (u *line) insert(g *Gang) {
	u.nodes += g.Nodes
	i := u.find(g)
	if i == 0 && u.front > 0 {
		u.front--
		u.all[u.front] = g
		return
	}
	if len(u.all) == cap(u.all) && u.front > len(u.all)/2 {
		n := copy(u.all, u.gangs())
		clear(u.all[n:])
		u.all, u.front = u.all[:n], 0
	}
	u.all = slices.Insert(u.all, u.front+i, g)
}

func (u *line) take(g *Gang) {
	u.nodes -= g.Nodes
	i := u.front + u.find(g)
	if i == u.front {
		u.all[i] = nil
		u.front++
		return
	}
	u.all = slices.Delete(u.all, i, i+1)
}
