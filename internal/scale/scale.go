// Package scale decides how many nodes a pool should have, and why: pure functions over a snapshot.
package scale

import "time"

// Pool is a cluster as the autoscaler sees it.
type Pool struct {
	Name     string
	Min, Max int
	Idle     time.Duration // how long a node may be without work
	Slots    int           // tasks a node runs at once; at least 1
	Nodes    []Node
	// Sizes is how many gangs wait, by the nodes they need, those above Max too. Gangs that Room
	// keeps from running make no nodes start.
	Sizes map[int]int
	// Room is how many nodes more may be asked for now, whatever Max says: by quota, budget, GPUs,
	// isolation. Bound says whose limit that is, one sentence; it matters only when Room is what
	// stops growth.
	Room  int
	Bound string
	// Hold says why the pool must not grow at all and gives back what is idle, Min or not: it is
	// being deleted. Empty when it may.
	Hold string
	// Wait is until when nothing more is asked for, after failures of the provider.
	Wait time.Time
}

// Node is a node as the autoscaler sees it.
type Node struct {
	Name string
	// Starting is a node that was asked for and is not there yet. A node that is leaving is not
	// listed.
	Starting bool
	Busy     int // tasks on it
	// Since is since when it is idle or, of one that is Starting, since when nobody needs it, zero
	// where that is not known or begins now.
	Since time.Time
	// Unpaid is why it goes as soon as it is idle and not needed, whatever Idle says: a budget that
	// paid for it is used up.
	Unpaid string
	// Evicted is a node that was taken away: it counts for nothing.
	Evicted bool
}

// A Decision is what to do with a pool.
type Decision struct {
	Add    int      // nodes to ask for
	Remove []string // nodes to give back; idle or starting ones only
	// Unneeded are the starting nodes that nobody needs now, those in Remove too.
	Unneeded []string
	// Target is how many nodes there are once this is done.
	Target int
	// Why is the reason of a change, one true sentence; empty when nothing changes.
	Why string
	// Short is why there are fewer nodes than the waiting tasks could use; empty when there are
	// enough.
	Short string
	// Wake is when to ask again although nothing happened: the next idle deadline, or the end of
	// Wait. Zero is never.
	Wake time.Time
}
