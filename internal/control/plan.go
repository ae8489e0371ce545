package control

import (
	"context"
	"os"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// plan is what a cycle decided, beside what it wrote: what is to be done once the transaction is
// durable. A crash before it is done is repaired by the next process, which finds in the store what
// should be.
type plan struct {
	starts []taskStart
	stops  []taskStop
	ended  []*placement // tasks whose targets may forget them

	addNodes    []berth.Node
	removeNodes []berth.Node
	nodeMoves   [][2]berth.NodeState // changes of state: from, to

	lostTasks     []lostTask
	forgetTargets []poolKey        // computes whose targets nobody needs any more
	returned      []*driver.Target // targets that were away

	logs     []logWrite
	discards []string // directories nobody needs any more

	liveFiles []string // of the blob store, which nobody needs any more

	portsTaken map[int]bool // spans of reserved ports, by the first
	portsAsked []int        // spans to reserve, by the ports needed
}

// taskStart is a task to start, with what its runner needs.
type taskStart struct {
	task   berth.Task
	launch berth.Launch
	sent   bool // the target may have it already, although it has not answered
}

// taskStop is a task to stop.
type taskStop struct {
	task berth.TaskID
	driver.Stop
}

// act does what a cycle decided. Calls that may take long run on their own.
func (c *Control) act(ctx context.Context, cy *cycle) {
	pl := &cy.plan
	for _, x := range cy.state.problems {
		c.o.Log.Error(x.message, x.what, x.who, "err", x.err)
	}
	for _, p := range pl.ended {
		c.countEnd(p.task.Compute, cy.now)
		p.over.Store(true)
		if p.inherited { // and could not be taken up: nobody starts it now
			p.inherited = false
			close(p.started)
		}
		select {
		case <-p.started:
		default:
			c.unanswered[p.task.ID] = p
		}
		c.removeEnded(ctx, p)
	}
	for _, s := range pl.nodeMoves {
		c.o.Moved(s[0], s[1])
	}
	c.writeLogs(pl.logs, cy.now)
	c.startTasks(ctx, pl.starts)
	c.settlePorts(cy)
	for _, s := range pl.stops {
		if p := c.state.placed[s.task]; p != nil {
			c.stopTask(ctx, p, s.Stop)
		}
	}
	for _, n := range pl.addNodes {
		c.addNode(ctx, n)
	}
	for _, n := range pl.removeNodes {
		c.removeNode(ctx, n)
	}
	c.observeReturned(ctx, pl.returned)
	c.endLostTasks(ctx, pl.lostTasks)
	for _, k := range pl.forgetTargets {
		if err := c.o.Targets.Forget(k.workspace, k.compute); err != nil {
			c.o.Log.Warn("target not let go", "compute", k.compute, "err", err)
		}
	}
	for _, dir := range pl.discards {
		c.acts.Go(func() { c.discard(dir) })
	}
	for _, name := range pl.liveFiles {
		if err := c.o.Blobs.RemoveLive(name); err != nil {
			c.o.Log.Warn("results not deleted", "file", name, "err", err)
		}
	}
	if cy.reloaded {
		c.takeUpInherited(ctx)
	}
}

// discard deletes what the attempts at a job handed on to each other.
func (c *Control) discard(dir string) {
	if err := os.RemoveAll(dir); err != nil {
		c.o.Log.Warn("kept outputs not deleted", "dir", dir, "err", err)
	}
}
