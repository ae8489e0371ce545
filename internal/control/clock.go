package control

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// clockEvery is how often to check whether the wall clock was set while something has dates. Each
// update checks too.
const clockEvery = 5 * time.Second

// checkClock takes note of a wall clock that was set, see shift.
func (c *Control) checkClock(ctx context.Context) {
	if !c.o.DB.Jumped() {
		return
	}
	if err := c.o.DB.Update(ctx, func(*store.Tx) error { return nil }); err != nil && ctx.Err() == nil {
		c.o.Log.Warn("the clock was set, and no note could be taken of it yet", "err", err)
	}
}

// clockInterval is how often to look at the clock: 0, which is never, while nothing has dates.
func (c *Control) clockInterval() time.Duration {
	if len(c.state.placed)+c.state.gangs.Len() > 0 {
		return clockEvery
	}
	for _, p := range c.state.pools.All() {
		if !p.single() && len(p.nodes) > 0 {
			return clockEvery
		}
	}
	return 0
}

// shift moves the times of everything that is not over by d, because the clock was set by d: ages
// stay the same, and nobody pays for time that has not passed. What is over keeps its times.
func shift(tx *store.Tx, d time.Duration) error {
	workspaces, err := tx.All(store.Query{Kind: "workspaces", NoBody: true})
	if err != nil {
		return err
	}
	for _, w := range workspaces {
		if err := shiftJobs(tx, w.Name, d); err != nil {
			return err
		}
		if err := shiftNodes(tx, w.Name, d); err != nil {
			return err
		}
		if err := shiftInstances(tx, w.Name, d); err != nil {
			return err
		}
	}
	return emitClock(tx, "", "server", d)
}

func emitClock(tx *store.Tx, workspace, subject string, d time.Duration) error {
	data, err := json.Marshal(berth.ClockSet{By: d})
	if err != nil {
		return err
	}
	way := "forward"
	if d < 0 {
		way = "back"
	}
	tx.Emit(berth.Event{
		Workspace: workspace, Subject: subject, Type: berth.EventClock, Data: data,
		Reason: fmt.Sprintf("the server's clock was set %s by %s; the times of what lives moved with it", way, d.Abs().Round(time.Second)),
	})
	return nil
}

// shiftJobs moves the times of jobs that are not over, and of their tasks.
func shiftJobs(tx *store.Tx, workspace string, d time.Duration) error {
	docs, err := tx.All(store.Query{Workspace: workspace, Kind: "jobs", Status: berth.StatusTexts(berth.ActiveStatuses)})
	if err != nil {
		return err
	}
	for _, doc := range docs {
		st, err := job.State(doc)
		if err != nil {
			continue // it ends for that, see jobWork.next
		}
		st.Times.Shift(d)
		for i := range st.Steps {
			berth.Shift(d, &st.Steps[i].Began, &st.Steps[i].Ended)
		}
		if err := store.SetState(doc, st); err != nil {
			return err
		}
		if err := tx.Save(doc); err != nil {
			return err
		}
		if err := emitClock(tx, workspace, "jobs/"+doc.Name, d); err != nil {
			return err
		}
		tasks, err := tx.TasksOf(workspace, doc.Name)
		if err != nil {
			return err
		}
		for _, t := range tasks {
			berth.Shift(d, &t.Created, &t.Seen)
			t.Times.Shift(d)
			if err := tx.SaveTask(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// shiftNodes moves the times of nodes, and what tasks used of them before: it has to stay within
// the life of its node.
func shiftNodes(tx *store.Tx, workspace string, d time.Duration) error {
	docs, err := target.NodeDocs(tx, workspace, "")
	if err != nil {
		return err
	}
	nodes, computes := map[string]bool{}, map[string]bool{}
	for _, doc := range docs {
		n, err := target.Node(doc)
		if err != nil {
			continue // left alone, see readPool
		}
		nodes[n.Name], computes[target.NodeParent(n.Compute)] = true, true
		berth.Shift(d, &n.Created, &n.Ready, &n.IdleSince)
		if err := target.SetNode(doc, n); err != nil {
			return err
		}
		if err := tx.Save(doc); err != nil {
			return err
		}
	}
	for compute := range computes {
		meters, err := tx.All(store.Query{Workspace: workspace, Kind: kindMeter, Parent: compute})
		if err != nil {
			return err
		}
		for _, doc := range meters {
			m, err := store.State[berth.Meter](doc)
			if err != nil || !nodes[m.Node] {
				continue
			}
			berth.Shift(d, &m.From, &m.To)
			if err := store.SetState(doc, m); err != nil {
				return err
			}
			if err := tx.Save(doc); err != nil {
				return err
			}
		}
	}
	return cost.Shift(tx, workspace, nodes, d)
}

// shiftInstances moves the times of instances and attached machines.
func shiftInstances(tx *store.Tx, workspace string, d time.Duration) error {
	docs, err := tx.All(store.Query{Workspace: workspace, Kind: "computes"})
	if err != nil {
		return err
	}
	for _, doc := range docs {
		st, err := target.State(doc)
		if err != nil || st.Instance == nil && st.Attached == nil {
			continue
		}
		if i := st.Instance; i != nil {
			berth.Shift(d, &i.Since, &i.AwakeAt, &i.StopsAt)
		}
		if a := st.Attached; a != nil {
			berth.Shift(d, &a.Since)
		}
		if err := store.SetState(doc, st); err != nil {
			return err
		}
		if err := tx.Save(doc); err != nil {
			return err
		}
	}
	return nil
}

// shiftTimes moves the times that only the loop knows, but for those of pools, see readState.
func (c *Control) shiftTimes(d time.Duration) {
	for _, f := range c.faults {
		f.since = f.since.Add(d)
	}
	for k, at := range c.revisit {
		c.revisit[k] = at.Add(d)
	}
	for _, p := range c.endRates {
		p.at = p.at.Add(d)
	}
}

// clockSet reports whether one of events says that the clock was set.
func clockSet(events []berth.Event) bool {
	return slices.ContainsFunc(events, func(e berth.Event) bool { return e.Type == berth.EventClock })
}
