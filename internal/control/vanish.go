package control

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// A node may vanish behind the server's back: somebody deleted its directory, or the database was
// restored without the nodes it speaks of. Such a node is given back, and its tasks end: those that
// had not begun are put back in the queue.

// readyNodes lists the nodes of clusters that the loop was told are there, by who makes them. Those
// of instances have a loop of their own.
func (c *Control) readyNodes() map[*driver.Target][]berth.Node {
	list := map[*driver.Target][]berth.Node{}
	for _, p := range c.state.pools.All() {
		if p.single() || p.spec.Instance() {
			continue
		}
		for _, n := range p.nodes {
			if maker := c.makes(n.Node); ready(n.State) && maker != nil {
				list[maker] = append(list[maker], n.Node)
			}
		}
	}
	return list
}

// ready says whether a provider has a node of a state.
func ready(s berth.NodeState) bool {
	return s == berth.NodeIdle || s == berth.NodeRunning || s == berth.NodePreempted
}

// checkNodes looks whether all nodes are there that the loop was told are. One that vanishes before
// is found when the loop is told of it. One look at a time: what is asked for meanwhile is looked
// at after that.
func (c *Control) checkNodes(ctx context.Context) {
	if c.checking {
		c.checkAgain = true
		return
	}
	list := c.readyNodes()
	if len(list) == 0 {
		return
	}
	c.checking = true
	c.acts.Go(func() {
		for maker, nodes := range list {
			if info, err := maker.Probe(ctx); err == nil {
				c.dropMissing(ctx, nodes, info)
			}
		}
		select {
		case c.checked <- struct{}{}:
		case <-ctx.Done():
		}
	})
}

// onChecked goes on when all nodes were looked at.
func (c *Control) onChecked(ctx context.Context) {
	again := c.checkAgain
	c.checking, c.checkAgain = false, false
	if again {
		c.checkNodes(ctx)
	}
}

// dropMissing drops the nodes that a provider does not have any more.
func (c *Control) dropMissing(ctx context.Context, want []berth.Node, info driver.Info) {
	known := map[string]driver.Node{}
	for _, n := range info.Nodes {
		known[n.Name] = n
	}
	for _, n := range want {
		if at, ok := known[n.Name]; !ok || at.Leaving {
			c.dropNode(ctx, n.Workspace, n.Name, at.Away, at.Taken)
		}
	}
}

// dropNode gives a node back that is gone, and ends what was on it. reason may be empty. taken says
// that it is not gone because of what ran on it.
func (c *Control) dropNode(ctx context.Context, workspace, name, reason string, taken bool) {
	if reason == "" {
		reason = "its machine no longer has it"
	}
	why := "node " + name + " is gone: " + reason
	dropped := false
	err := c.o.DB.Update(ctx, func(tx *store.Tx) error {
		d, n, err := target.LoadNode(tx, workspace, name)
		if berth.CodeOf(err) == berth.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		if n.State == berth.NodeLeaving || n.Evict == berth.EvictReclaim {
			return nil
		}
		dropped = true
		n.Evict, n.Why = berth.EvictReclaim, reason
		if err := target.SetNode(d, n); err != nil {
			return err
		}
		if err := tx.Save(d); err != nil {
			return err
		}
		if err := emitNode(tx, n, string(n.State), why); err != nil {
			return err
		}
		return endTasksOn(tx, workspace, name, why, taken)
	})
	switch {
	case err != nil && ctx.Err() == nil:
		c.o.Log.Error("node not dropped", "node", name, "err", err)
	case dropped:
		c.o.Log.Warn("a node is gone, and given up", "node", name)
	}
}

// endTasksOn ends the tasks that were on a node that is gone.
func endTasksOn(tx *store.Tx, workspace, node, why string, taken bool) error {
	tasks, err := tx.ActiveTasks()
	if err != nil {
		return err
	}
	for _, t := range tasks {
		if t.Workspace != workspace || t.Node != node || t.State == berth.TaskWaiting {
			continue
		}
		if err := recordEnd(tx, t, goneExit(t, why, taken)); err != nil {
			return err
		}
	}
	return nil
}

// goneExit is how a task ends whose node is gone. One that had not begun is evicted, and its job
// tries again; so is one whose node was taken away, which may have ended its command too.
func goneExit(t *berth.Task, why string, taken bool) *berth.Exit {
	switch {
	case taken || t.State == berth.TaskPlaced || t.State == berth.TaskStarting:
		return &berth.Exit{Code: -1, Cause: "evicted", Reason: why}
	case t.State == berth.TaskEnding:
		return &berth.Exit{Code: -1, Cause: "lost", Reason: why + " before what the command left was uploaded"}
	}
	return &berth.Exit{Code: -1, Cause: "lost", Reason: why + " while the command ran"}
}

// recordEnd writes an end that no runner reports.
func recordEnd(tx *store.Tx, t *berth.Task, e *berth.Exit) error {
	t.State, t.Exit, t.Why = berth.TaskDone, e, e.Reason
	t.Times.Ended = tx.Now()
	data, err := json.Marshal(map[string]any{"task": t.ID, "state": t.State, "exit": e})
	if err != nil {
		return err
	}
	tx.Emit(berth.Event{Workspace: t.Workspace, Subject: "jobs/" + t.Job, Type: berth.EventTaskState, Reason: e.Reason, Data: data})
	if len(t.Kept) > 0 {
		why := fmt.Sprintf("with the files that were uploaded before the task of attempt %d ended", t.Attempt)
		tx.Emit(berth.Event{Workspace: t.Workspace, Subject: "jobs/" + t.Job, Type: berth.EventJobWarning, Reason: berth.PartialOutputs(t.Kept, why)})
	}
	return tx.SaveTask(t)
}
