package control

import (
	"context"
	"encoding/json"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// A node may vanish behind the server's back: somebody deleted its directory, or the database was
// restored without the nodes it speaks of. Such a node is given back, and its tasks end: those that
// had not begun are put back in the queue.

// readyNodes lists the nodes of clusters that the loop was told are there. Those of instances have
// a loop of their own.
func (c *Control) readyNodes() []berth.Node {
	var list []berth.Node
	for _, p := range c.state.pools.All() {
		if p.single() || p.spec.Instance() {
			continue
		}
		for _, n := range p.nodes {
			if ready(n.State) {
				list = append(list, n.Node)
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
	if c.nodes.Driver == nil {
		return
	}
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
		if info, err := c.nodes.Driver.Probe(ctx); err == nil {
			c.dropMissing(ctx, list, info)
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
	there := map[string]bool{}
	for _, n := range info.Nodes {
		there[n.Name] = !n.Leaving
	}
	for _, n := range want {
		if !there[n.Name] {
			c.dropNode(ctx, n.Workspace, n.Name)
		}
	}
}

// dropNode gives a node back that is gone, and ends what was on it.
func (c *Control) dropNode(ctx context.Context, workspace, name string) {
	const reason = "its machine no longer has it"
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
		return endTasksOn(tx, workspace, name, why)
	})
	switch {
	case err != nil && ctx.Err() == nil:
		c.o.Log.Error("node not dropped", "node", name, "err", err)
	case dropped:
		c.o.Log.Warn("a node is gone, and given up", "node", name)
	}
}

// endTasksOn ends the tasks that were on a node that is gone.
func endTasksOn(tx *store.Tx, workspace, node, why string) error {
	tasks, err := tx.ActiveTasks()
	if err != nil {
		return err
	}
	for _, t := range tasks {
		if t.Workspace != workspace || t.Node != node || t.State == berth.TaskWaiting {
			continue
		}
		if err := recordEnd(tx, t, goneExit(t, why)); err != nil {
			return err
		}
	}
	return nil
}

// goneExit is how a task ends whose node is gone. One that had not begun is evicted, and its job
// tries again.
func goneExit(t *berth.Task, why string) *berth.Exit {
	switch t.State {
	case berth.TaskPlaced, berth.TaskStarting:
		return &berth.Exit{Code: -1, Cause: "evicted", Reason: why}
	case berth.TaskEnding:
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
	return tx.SaveTask(t)
}
