package sched

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth/internal/overlay"
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
	GPUs     int   // on each node, as berth.Task.GPUs; counts where Pool.GPUs is set
	// Limit is how long it can run at most; 0 when nobody knows.
	Limit time.Duration
}

func (g *Gang) name() string { return cmp.Or(g.Name, g.ID) }

// before is the order among gangs of one user and one priority.
func (g *Gang) before(h *Gang) int {
	return cmp.Or(cmp.Compare(g.Seq, h.Seq), strings.Compare(g.ID, h.ID))
}

// Queue holds the gangs that wait for one pool, in the order in which they should run: by priority,
// then fairly between users (who has the fewest nodes goes first), then by Seq. It is not safe for
// concurrent use. The zero Queue is empty.
//
// A fork of it can be changed on trial, see Fork. Levels and lines are copied when a fork first
// changes them: those of its own edition are its own, the others it shares.
type Queue struct {
	gangs   overlay.Map[string, *Gang]
	levels  []*level // by priority, highest first; none is empty
	sizes   map[int]int
	edition int
}

// level is the gangs of one priority.
type level struct {
	edition  int
	priority int
	gangs    int
	users    map[string]*line
	lines    []*line // the same, in no order that means anything
}

// line is the gangs of one user and one priority, by Seq. Most come at its end and leave at its
// front.
type line struct {
	edition int
	user    string
	at      int // in level.lines
	nodes   int // of all its gangs
	all     []*Gang
	front   int // all[:front] is free room: a gang that was preempted comes back to its place
	array   int // the edition that made the array of all. Another may only append to it, which those who share it do not see.
}

// Fork is q as it is now, to be changed on trial. While it is used q must not be changed; Join
// makes q what the fork has become.
func (q *Queue) Fork() Queue {
	return Queue{gangs: q.gangs.Fork(), levels: slices.Clone(q.levels), sizes: maps.Clone(q.sizes), edition: q.edition + 1}
}

// Join makes q what a fork of it has become. The fork must not be used any more.
func (q *Queue) Join(fork *Queue) {
	q.gangs.Join(&fork.gangs)
	q.levels, q.sizes, q.edition = fork.levels, fork.sizes, fork.edition
}

// own is the i-th level, to be changed.
func (q *Queue) own(i int) *level {
	l := q.levels[i]
	if l.edition != q.edition {
		c := *l
		c.edition, c.users, c.lines = q.edition, maps.Clone(l.users), slices.Clone(l.lines)
		l = &c
		q.levels[i] = l
	}
	return l
}

// own is a user's line, to be changed; nil when there is none.
func (l *level) own(user string) *line {
	u := l.users[user]
	if u != nil && u.edition != l.edition {
		c := *u
		c.edition = l.edition
		u = &c
		l.users[user], l.lines[u.at] = u, u
	}
	return u
}

// ownArray gives the line an array of its own.
func (u *line) ownArray() {
	if u.array != u.edition {
		u.all = append(make([]*Gang, 0, len(u.gangs())+len(u.gangs())/4+1), u.gangs()...)
		u.front, u.array = 0, u.edition
	}
}

// Add puts a gang in its place. An ID that is there already has no effect.
func (q *Queue) Add(g Gang) {
	if _, ok := q.gangs.Get(g.ID); ok {
		return
	}
	g.Nodes = max(g.Nodes, 1)
	q.insert(&g)
}

// Remove takes a gang out and says whether it was there.
func (q *Queue) Remove(id string) bool {
	g, ok := q.gangs.Get(id)
	if !ok {
		return false
	}
	q.take(g)
	return true
}

// Get is the gang with that ID.
func (q *Queue) Get(id string) (Gang, bool) {
	if g, ok := q.gangs.Get(id); ok {
		return *g, true
	}
	return Gang{}, false
}

// At is how many gangs of a priority wait.
func (q *Queue) At(priority int) int {
	for _, l := range q.levels {
		if l.priority == priority {
			return l.gangs
		}
	}
	return 0
}

// Len is how many gangs wait.
func (q *Queue) Len() int { return q.gangs.Len() }

// IDs are those of all gangs that wait, in no order.
func (q *Queue) IDs() iter.Seq[string] { return q.gangs.Keys() }

// Sizes is how many gangs wait, by the number of nodes they need. The caller may keep it.
func (q *Queue) Sizes() map[int]int {
	m := make(map[int]int, len(q.sizes))
	for nodes, gangs := range q.sizes {
		m[nodes] = gangs
	}
	return m
}

// SizesWithin is Sizes without the gangs whose users may have no more, and the user of the first
// that is left.
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
	if q.sizes == nil {
		q.sizes = map[int]int{}
	}
	q.gangs.Set(g.ID, g)
	q.sizes[g.Nodes]++
	i, ok := q.level(g.Priority)
	if !ok {
		q.levels = slices.Insert(q.levels, i, &level{edition: q.edition, priority: g.Priority, users: map[string]*line{}})
	}
	l := q.own(i)
	l.gangs++
	u := l.own(g.User)
	if u == nil {
		u = &line{edition: q.edition, array: q.edition, user: g.User, at: len(l.lines)}
		l.users[g.User] = u
		l.lines = append(l.lines, u)
	}
	u.insert(g)
}

// take removes a gang that is there.
func (q *Queue) take(g *Gang) {
	q.gangs.Delete(g.ID)
	if q.sizes[g.Nodes]--; q.sizes[g.Nodes] == 0 {
		delete(q.sizes, g.Nodes)
	}
	i, _ := q.level(g.Priority)
	if q.levels[i].gangs == 1 {
		q.levels = slices.Delete(q.levels, i, i+1)
		return
	}
	l := q.own(i)
	l.gangs--
	u := l.own(g.User)
	if u.take(g); len(u.gangs()) > 0 {
		return
	}
	last := len(l.lines) - 1
	moved := l.own(l.lines[last].user)
	l.lines[u.at] = moved
	moved.at = u.at
	l.lines[last] = nil
	l.lines = l.lines[:last]
	delete(l.users, g.User)
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
	full := len(u.all) == cap(u.all) && u.front > len(u.all)/2
	if i < len(u.gangs()) || full {
		u.ownArray()
	}
	if i == 0 && u.front > 0 {
		u.front--
		u.all[u.front] = g
		return
	}
	if full && u.front > 0 {
		n := copy(u.all, u.gangs())
		clear(u.all[n:])
		u.all, u.front = u.all[:n], 0
	}
	u.all = slices.Insert(u.all, u.front+i, g)
}

func (u *line) take(g *Gang) {
	u.nodes -= g.Nodes
	i := u.find(g)
	if i > 0 {
		u.ownArray()
		u.all = slices.Delete(u.all, u.front+i, u.front+i+1)
		return
	}
	if u.array == u.edition {
		u.all[u.front] = nil
	}
	u.front++
}
