package fake

import (
	"slices"

	"github.com/berthml/berth"
)

// Finish ends a task now, in the given way. It does nothing to a task that is over or not there.
func (d *Driver) Finish(id berth.TaskID, exit berth.Exit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tasks[id]; t != nil && t.state != berth.TaskDone {
		t.outcome.Exit = exit
		d.end(t)
	}
}

// Lose makes a task vanish as if its node had: no report, and Observe does not know it.
func (d *Driver) Lose(id berth.TaskID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tasks[id]; t != nil {
		d.halt(t)
		delete(d.tasks, id)
	}
}

// Break makes every call of an operation (probe, start, answer: that of a start which is carried
// out, observe, stop, remove, add node, remove node) fail with err, until err is nil.
func (d *Driver) Break(op string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken[op] = err
}

// Starts lists the tasks that were placed, in order; a task that was placed twice is there twice.
func (d *Driver) Starts() []berth.TaskID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.starts)
}

// Launch is what a task was started with.
func (d *Driver) Launch(id berth.TaskID) (berth.Launch, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tasks[id]
	if t == nil {
		return berth.Launch{}, false
	}
	return t.launch, true
}

// Running counts the tasks that are placed or run.
func (d *Driver) Running() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, t := range d.tasks {
		if t.state != berth.TaskDone {
			n++
		}
	}
	return n
}
