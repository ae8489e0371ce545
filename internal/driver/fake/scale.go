package fake

import (
	"context"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// AddNode is [driver.Scaler.AddNode]: a node is there when its boot time is over.
func (d *Driver) AddNode(ctx context.Context, n driver.NodeSpec) error {
	if err := berth.CheckName("node", n.Name); err != nil {
		return err
	}
	d.mu.Lock()
	err, there := d.broken["add node"], d.at(n.Name) >= 0
	d.mu.Unlock()
	if !d.o.Scales {
		return berth.Errorf(berth.Unsupported, "this target cannot add or remove nodes")
	}
	if err != nil || there {
		return err
	}
	if d.o.Boot > 0 {
		timer := time.NewTimer(d.o.Boot)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return berth.Errorf(berth.Unavailable, "creating node %s: %w", n.Name, context.Cause(ctx))
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.broken["add node"]; err != nil || d.at(n.Name) >= 0 {
		return err
	}
	d.nodes = append(d.nodes, driver.Node{
		Name: n.Name, CPUs: max(n.CPUs, 1), Memory: n.Memory, GPUs: len(n.GPUs), OS: "linux", Arch: "amd64", Labels: map[string]string{"size": n.Size},
	})
	return nil
}

// RemoveNode is [driver.Scaler.RemoveNode].
func (d *Driver) RemoveNode(_ context.Context, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.broken["remove node"]; err != nil {
		return err
	}
	d.drop(name)
	return nil
}

// KillNode kills everything on a node at once. The node is there again, but its tasks are lost,
// which nobody reports: only Observe tells.
func (d *Driver) KillNode(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tasks {
		if t.launch.Node == name && t.state != berth.TaskDone {
			t.outcome.Silent = true
			t.outcome.Exit = berth.Exit{Code: -1, Cause: "lost", Reason: "its node was killed"}
			d.end(t)
		}
	}
	d.hint()
}

// DropNode makes a node vanish, and its tasks with it, as if its machine had been taken away.
func (d *Driver) DropNode(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop(name)
}

// TakeNode takes a node away: it is listed as such until it is removed, and its tasks end without a
// report.
func (d *Driver) TakeNode(name, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := d.at(name); i >= 0 {
		d.nodes[i].Leaving, d.nodes[i].Taken, d.nodes[i].Away = true, true, why
	}
	for id, t := range d.tasks {
		if t.launch.Node == name {
			delete(d.tasks, id)
		}
	}
	d.hint()
}

// RunningOn counts the tasks on a node that are placed or run.
func (d *Driver) RunningOn(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, t := range d.tasks {
		if t.launch.Node == name && t.state != berth.TaskDone {
			n++
		}
	}
	return n
}

// at is where a node is in the list, -1 when it is not. The mutex is held.
func (d *Driver) at(name string) int {
	return slices.IndexFunc(d.nodes, func(n driver.Node) bool { return n.Name == name })
}

// drop forgets a node and its tasks. The mutex is held.
func (d *Driver) drop(name string) {
	i := d.at(name)
	if i < 0 {
		return
	}
	d.nodes = slices.Delete(d.nodes, i, i+1)
	for id, t := range d.tasks {
		if t.launch.Node == name {
			d.halt(t)
			delete(d.tasks, id)
		}
	}
	d.hint()
}

// hint tells everybody who watches that something changed. The mutex is held.
func (d *Driver) hint() {
	for c := range d.hints {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
