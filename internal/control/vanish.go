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

// clusterNodes lists the nodes of clusters as the loop knows them. Those of instances have a loop
// of their own.
func (c *Control) clusterNodes() []berth.Node {
	var list []berth.Node
	for _, p := range c.state.pools.All() {
		if p.single() || p.spec.Instance() {
			continue
		}
		for _, n := range p.nodes {
			list = append(list, n.Node)
		}
	}
	return list
}

// expectedNodes are those of list that should be there now. The store says so: the loop may not
// have been told yet that one was made.
func (c *Control) expectedNodes(ctx context.Context, list []berth.Node) (out []berth.Node, err error) {
	err = c.o.DB.View(ctx, func(tx *store.Tx) error {
		for _, n := range list {
			_, n, err := target.LoadNode(tx, n.Workspace, n.Name)
			if berth.CodeOf(err) == berth.NotFound {
				continue
			}
			if err != nil {
				return err
			}
			switch n.State {
			case berth.NodeIdle, berth.NodeRunning, berth.NodePreempted:
				out = append(out, n)
			}
		}
		return nil
	})
	return out, err
}

// checkNodes looks whether all nodes are there.
func (c *Control) checkNodes(ctx context.Context) {
	list := c.clusterNodes()
	if c.nodes.Driver == nil || len(list) == 0 {
		return
	}
	c.acts.Go(func() {
		// before the provider is asked: what is made later is none of these
		want, err := c.expectedNodes(ctx, list)
		if err != nil || len(want) == 0 {
			return
		}
		if info, err := c.nodes.Driver.Probe(ctx); err == nil {
			c.dropMissing(ctx, want, info)
		}
	})
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
