// Package sched decides which waiting task goes where, and why not: pure functions over a snapshot.
package sched

import (
	"fmt"

	"github.com/berthml/berth"
)

// Target is a compute target as the scheduler sees it.
type Target struct {
	Name  string
	Slots int // how many tasks it runs at once
	Used  int
	// Ahead is how many tasks more it may be given, to keep in line until a slot is free.
	Ahead int
	// Down is why it takes no tasks now; empty when it does.
	Down string
}

// A Decision is what happens to one waiting task.
type Decision struct {
	Task  berth.TaskID
	Place bool
	// Why is one true sentence, for a placement as for a wait.
	Why string
}

// Plan decides for the waiting tasks of one target, which come in the order in which they should run.
func Plan(t Target, waiting []berth.TaskID) []Decision {
	out := make([]Decision, len(waiting))
	used := t.Used
	for i, id := range waiting {
		d := Decision{Task: id}
		switch {
		case t.Down != "":
			d.Why = t.Name + " takes no jobs now: " + t.Down
		case used < t.Slots:
			used++
			d.Place, d.Why = true, fmt.Sprintf("placed on %s: a slot was free", t.Name)
		case used < t.Slots+t.Ahead:
			used++
			d.Place, d.Why = true, fmt.Sprintf("next in line on %s: it runs as soon as one of the %d slots is free", t.Name, t.Slots)
		default:
			d.Why = fmt.Sprintf("waiting for %s: all %d slots are in use", t.Name, t.Slots)
		}
		out[i] = d
	}
	return out
}
