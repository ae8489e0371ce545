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
	free := t.Slots - t.Used
	for i, id := range waiting {
		d := Decision{Task: id}
		switch {
		case t.Down != "":
			d.Why = t.Name + " takes no jobs now: " + t.Down
		case free > 0:
			free--
			d.Place, d.Why = true, fmt.Sprintf("placed on %s: a slot was free", t.Name)
		default:
			d.Why = fmt.Sprintf("waiting for %s: all %d slots are in use", t.Name, t.Slots)
		}
		out[i] = d
	}
	return out
}
