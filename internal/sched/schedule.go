// Package sched decides which waiting gang goes where, and why not, and what may share a machine:
// pure functions over a snapshot.
package sched

import (
	"fmt"
	"slices"
	"time"

	"github.com/berthml/berth"
)

// Pool is a compute as the scheduler sees it.
type Pool struct {
	Name  string
	Nodes []Node // in an order that stays
	// Max is how many nodes it can ever have. A gang that needs more can never run.
	Max    int
	Spread bool // over nodes instead of filling those in use first
	// Ahead is how many tasks the node of the compute local may be given beyond its slots, to keep
	// in line.
	Ahead int
	Down  string         // why it takes nothing now; empty when it does
	Held  map[string]int // nodes each user holds now
	// Starting is how many nodes are on their way.
	Starting int
	// Short is why there are fewer nodes than wanted, as the autoscaler says it; empty when more
	// can come, up to Max.
	Short   string
	Preempt bool // gangs on Spot may be stopped for gangs of higher priority
	// GPUs says that nodes give gangs the GPUs that these ask for. It is for machines that nobody
	// makes, of which nothing is stopped and nothing is known of when it ends: see gpu.go.
	GPUs bool
	// Bars limits users: those who are not in it have no end.
	Bars map[string]Bar
}

// Bar is how many nodes more a user's gangs may have now, counting one for each task, and whose
// limit that is.
type Bar struct {
	Nodes int
	Why   string
}

// LocalBar is the bar of a user who may have so many jobs on the machine itself and has some.
func LocalBar(most, has int) Bar {
	return Bar{Nodes: max(0, most-has), Why: fmt.Sprintf("a user may have %s on %s at once (local_jobs_per_user of the server)", count(most, "job"), berth.LocalCompute)}
}

// Node is a node of a pool.
type Node struct {
	Name        string
	Slots, Used int // tasks at once, and now
	// Ready is false for a node that takes nothing: it starts, leaves or cannot be used.
	Ready bool
	// GPUs is how many it has, Share how many of them a gang has that does not say, and Holders
	// the gangs that have some, where Pool.GPUs is set.
	GPUs, Share int
	Holders     Holders
}

// Running is a gang that has its nodes.
type Running struct {
	Gang
	On    []string // names of its nodes
	Since time.Time
	// Stopping is a gang that was told to stop: its slots will be free soon.
	Stopping bool
}

// A Choice is what happens to one waiting gang.
type Choice struct {
	Gang  string
	Nodes []string // where it is placed, in order of rank; empty when it waits
	// Preempt is the gangs to stop so that this one, which still waits now, can start.
	Preempt []string
	Why     string // one true sentence, for a placement as for a wait
}

// look is how many gangs that cannot be placed are looked at, in order. Later ones have to wait
// until they are among these.
const look = 64

// Schedule decides for the gangs of q, in order. It has a Choice for every gang it places, for
// those it looked at and could not place, and for every one of fresh, gangs that have no reason
// yet. It does not change q.
//
// A gang that cannot run however long it waits, because it needs more nodes than Max, or than there
// are while Short keeps the pool from growing, is passed over, and so is one whose user may have no
// more. The first other gang that cannot be placed is the head. Later ones are placed only where
// that does not make the head wait longer: because they end, by their limit, before the head could
// start by the limits of what runs, or because they take what the head will not need. Where nobody
// can say when the head can start, it keeps all nodes that are free.
//
// With Preempt, gangs on Spot of lower priority are stopped for the head, and for those after it as
// long as all before them will have their nodes soon: as few as will do, and none when that is not
// enough. Nodes that are to come are counted on first.
//
// What is said about gangs that were not looked at stays true until they are, unless Down, Max,
// Short or Bars change: then give the ID of every waiting gang as fresh.
func Schedule(p Pool, q *Queue, running []Running, fresh []string, now time.Time) []Choice {
	s := round{pool: &p, queue: q, running: running, now: now, local: berth.IsLocal(p.Name) && len(p.Nodes) == 1}
	s.open()
	c := q.cursor(p.Held)
	for len(s.waits) < look && (p.Down == "" || s.passed < look) {
		if s.local && s.stock.len() == 0 && p.Down == "" {
			break // what waits has its reason, which is the same for all
		}
		g := c.next()
		if g == nil {
			break
		}
		switch why := s.stuck(g); {
		case why != "" && s.passed < look:
			s.passed++
			s.wait(g, why)
		case why != "":
		case s.head == nil && g.Nodes <= s.seats(g):
			s.place(g)
			s.count(g)
			c.took()
		case s.head != nil && s.fill(g):
			s.count(g)
			c.took()
		case s.block(g):
			c.took() // it will have its nodes soon
		}
	}
	s.explain()
	s.rest(fresh)
	return s.out
}

// round is one call of Schedule.
type round struct {
	pool    *Pool
	queue   *Queue
	running []Running
	now     time.Time
	local   bool

	out   []Choice
	names []string // room for the nodes of choices
	free  []int    // slots of each node, less than 0 where it has more tasks than slots
	ready int      // nodes
	slots int      // of the largest node
	stock stock    // ready nodes with a free slot
	where map[string]int32
	gpus  []gpus // of each node; nil unless Pool.GPUs is set

	waits  []waiting
	passed int            // gangs that were passed over because they are stuck
	given  map[string]int // nodes by user, where users are limited
	head   *Gang
	keep   *reserve

	outlook outlook
	victims *victims
	// said holds sentences that many share.
	said struct {
		placed, line, full string
		stuck              map[[2]int]string // by the nodes and GPUs of the gang
	}
}

func (s *round) open() {
	nodes := s.pool.Nodes
	s.free = make([]int, len(nodes))
	s.stock = stock{free: s.free, spread: s.pool.Spread}
	for i := range nodes {
		n := &nodes[i]
		s.free[i] = n.Slots - n.Used
		if s.local {
			s.free[i] += s.pool.Ahead
		}
		s.slots = max(s.slots, n.Slots)
		if !n.Ready {
			continue
		}
		s.ready++
		if s.free[i] > 0 {
			if s.stock.nodes == nil {
				s.stock.nodes = make([]int32, 0, len(nodes)-i)
			}
			s.stock.nodes = append(s.stock.nodes, int32(i))
		}
	}
	s.stock.order()
	s.openGPUs()
}

// place gives a gang the nodes that come first; there are enough.
func (s *round) place(g *Gang) {
	if s.gpus != nil {
		on := s.seat(g, func(int32) bool { return true })
		s.out = append(s.out, Choice{Gang: g.ID, Nodes: on, Why: s.placed(g, on)})
		return
	}
	on := s.room(g.Nodes)
	if g.Nodes == 1 {
		on[0] = s.pool.Nodes[s.stock.one()].Name
	} else {
		taken := make([]int32, g.Nodes)
		for i := range taken {
			taken[i] = s.stock.pop()
		}
		slices.Sort(taken) // ranks follow the order of nodes
		for i, n := range taken {
			on[i] = s.pool.Nodes[n].Name
			if s.free[n]--; s.free[n] > 0 {
				s.stock.push(n)
			}
		}
	}
	s.out = append(s.out, Choice{Gang: g.ID, Nodes: on, Why: s.placed(g, on)})
}

// room is n names, cut from a larger piece.
func (s *round) room(n int) []string {
	if len(s.names) < n {
		s.names = make([]string, max(n, min(s.queue.Len(), s.stock.len()*s.slots, 1024)))
	}
	on := s.names[:n:n]
	s.names = s.names[n:]
	return on
}

func (s *round) wait(g *Gang, why string) { s.out = append(s.out, Choice{Gang: g.ID, Why: why}) }

// stuck is why a gang cannot run however long it waits, as things are: such a one keeps nobody else
// waiting.
func (s *round) stuck(g *Gang) string {
	switch {
	case s.pool.Down != "":
		return s.down()
	case g.Nodes > s.pool.Max:
		return s.never(g)
	case g.Nodes > s.ready+s.pool.Starting && s.pool.Short != "":
		return s.bounded(g)
	case s.gpus != nil:
		if why := s.unfit(g); why != "" {
			return why
		}
	}
	if bar, ok := s.pool.Bars[g.User]; ok && g.Nodes > bar.Nodes-s.given[g.User] {
		return bar.Why
	}
	return ""
}

// count notes what a user got who is limited.
func (s *round) count(g *Gang) {
	if len(s.pool.Bars) == 0 {
		return
	}
	if s.given == nil {
		s.given = map[string]int{}
	}
	s.given[g.User] += g.Nodes
}

// waiting is a gang that was looked at and waits. Its reason is written when all is decided, so
// that it speaks of how things are then.
type waiting struct {
	gang *Gang
	out  int // its place in round.out
}

// block has a gang wait, and says whether it only waits for nodes that are about to be there. The
// first one is the head.
func (s *round) block(g *Gang) (soon bool) {
	first := s.head == nil
	if first {
		s.head = g
		s.survey()
	}
	why, stop, soon := s.await(g)
	if first {
		s.outlook.soon = soon
	}
	s.waits = append(s.waits, waiting{g, len(s.out)})
	s.out = append(s.out, Choice{Gang: g.ID, Preempt: stop, Why: why})
	return soon
}

// explain writes what block left open.
func (s *round) explain() {
	for _, w := range s.waits {
		switch c := &s.out[w.out]; {
		case w.gang != s.head && len(c.Preempt) == 0 && w.gang.Nodes <= s.seats(w.gang):
			c.Why = fmt.Sprintf("job %s goes first: it %s", s.head.name(), s.asks(s.head))
		case c.Why == "":
			c.Why = s.lacking(w.gang)
		}
	}
}

// rest gives a reason to the fresh gangs that have none yet.
func (s *round) rest(fresh []string) {
	if len(fresh) == 0 {
		return
	}
	seen := make(map[string]bool, len(s.out)+len(fresh))
	for i := range s.out {
		seen[s.out[i].Gang] = true
	}
	for _, id := range fresh {
		if g, ok := s.queue.gangs.Get(id); ok && !seen[id] {
			seen[id] = true
			s.wait(g, s.later(g))
		}
	}
}
