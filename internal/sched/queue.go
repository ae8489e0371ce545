package sched

import "time"

// Gang is the tasks of one attempt at a job, which start together or not at all: one task per node.
type Gang struct {
	ID       string // of its own among all gangs
	Nodes    int    // how many nodes, one task on each; at least 1
	User     string
	Priority int   // higher goes first
	Seq      int64 // order of submission: smaller goes first among equals
	Spot     bool  // may be stopped for work of higher priority
	// Limit is how long it can run at most; 0 when nobody knows.
	Limit time.Duration
}

// Queue holds the gangs that wait for one pool, in the order in which they should run: by priority, then fairly between users
// (who has the fewest nodes goes first), then by Seq. It is not safe for concurrent use.
//
// Changes can be taken back: Commit makes everything since the last Commit or Rollback stand, Rollback undoes it. That is for
// callers whose own transaction may fail and be run again.
type Queue struct {
	// implementation
}
