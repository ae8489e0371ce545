package fake

import (
	"context"

	"github.com/berthml/berth"
)

// Turn is [driver.Turner.Turn].
func (d *Driver) Turn(_ context.Context, id berth.TaskID, ask berth.Turn) (berth.TurnAnswer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	none := berth.TurnAnswer{Task: berth.NoTurn}
	switch {
	case d.o.Turns == "":
		return none, berth.Errorf(berth.Unsupported, "a runner of this target has one task")
	case ask.Array != d.o.Turns:
		return none, nil // all its tasks are over
	case ask.Runner < 0 || ask.Runner >= len(d.starts) || d.starts[ask.Runner] != id:
		return none, berth.Errorf(berth.Denied, "task %s is not number %d", id, ask.Runner)
	}
	own := d.tasks[id]
	last, had := d.turns[ask.Runner]
	if had {
		if ask.Ended == nil || *ask.Ended != last {
			return berth.TurnAnswer{Task: last}, nil
		}
		t := d.tasks[d.starts[last]]
		if t != nil && t.state != berth.TaskDone {
			d.end(t)
		}
		if t == nil || t.stopped {
			return none, nil
		}
	}
	if own == nil || own.stopped || own.given && !had {
		return none, nil
	}
	next := ask.Runner
	for i := len(d.starts) - 1; i >= 0 && own.given; i-- {
		if t := d.tasks[d.starts[i]]; t != nil && t.state == berth.TaskPlaced && !t.stopped && !t.given {
			next = i
			break
		}
	}
	t := d.tasks[d.starts[next]]
	if t.given {
		return none, nil
	}
	t.given, d.turns[ask.Runner] = true, next
	d.begin(t)
	return berth.TurnAnswer{Task: next}, nil
}
