package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// computeService serves what is asked of a compute's nodes.
type computeService struct {
	db   *store.DB
	docs *documentService
}

// nodes reads the nodes of a compute, and its state as of the same moment.
func (s *computeService) nodes(c *call, d *store.Doc, st berth.ComputeState) (out []berth.Node, _ berth.ComputeState, err error) {
	err = s.db.View(c.ctx(), func(tx *store.Tx) error {
		if out, err = target.Nodes(tx, d.Workspace, d.Name); err != nil {
			return err
		}
		now, err := tx.Get(d.Workspace, d.Kind, d.Name, "")
		if berth.CodeOf(err) == berth.NotFound {
			return nil
		}
		if err == nil {
			st, err = target.State(now)
		}
		return err
	})
	return out, st, err
}

// listNodes lists the nodes of a cluster, with what runs on them.
func listNodes(c *call, r *resource, name, _ string) error {
	d, err := c.s.docs.load(c, r, name, "")
	if err != nil {
		return err
	}
	value := []any{}
	err = c.s.DB.View(c.ctx(), func(tx *store.Tx) error {
		nodes, err := target.Nodes(tx, d.Workspace, d.Name)
		if err != nil {
			return err
		}
		runs := map[string]string{}
		tasks, err := tx.ActiveTasks()
		if err != nil {
			return err
		}
		for _, t := range tasks {
			if t.Node != "" {
				runs[t.Node] = t.Job
			}
		}
		for _, n := range nodes {
			node := map[string]any{
				"nodeId": n.Name, "nodeState": n.State, "privateIpAddress": "127.0.0.1", "publicIpAddress": nil, "port": nil, "runId": nil,
				"berth": n,
			}
			if job, ok := runs[n.Name]; ok {
				node["runId"] = job
			}
			value = append(value, node)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, map[string]any{"nodes": value})
}

// eviction is what is asked of evict: one node, or all of a cluster, for good or as a drill.
type eviction struct {
	Node     string `json:"node"`
	Simulate bool   `json:"simulate"`
	DryRun   bool   `json:"dryRun"`
}

// hits says whether a node is one that the eviction takes away.
func (e eviction) hits(n berth.Node) bool {
	if e.Node != "" && !strings.EqualFold(e.Node, n.Name) {
		return false
	}
	return n.Evict == "" && (n.State == berth.NodeIdle || n.State == berth.NodeRunning)
}

// evictNodes takes nodes of a cluster away from their jobs, for good or as a drill (ours).
func evictNodes(c *call, r *resource, name, _ string) error {
	var e eviction
	if err := c.into(&e); err != nil {
		return err
	}
	nodes, jobs := []string{}, []string{}
	err := c.s.DB.Update(c.ctx(), func(tx *store.Tx) error {
		d, err := tx.Get(c.ws.Key(), r.Collection, name, "")
		if err != nil {
			return c.missing(err, r, name, "")
		}
		if nodes, err = e.mark(tx, d, c.who.User); err != nil {
			return err
		}
		if jobs, err = jobsOn(tx, nodes); err != nil {
			return err
		}
		switch {
		case len(nodes) == 0 && e.Node != "":
			return berth.Errorf(berth.NotFound, "compute %s has no node %q that could be taken away; `berth compute list-nodes -n %s` shows what there is", d.Name, e.Node, d.Name)
		case len(nodes) > 0 && !e.DryRun:
			tx.Emit(berth.Event{Workspace: d.Workspace, Subject: "computes/" + d.Name, Type: berth.EventComputes, Reason: "eviction of " + strings.Join(nodes, ", ") + " asked for by " + c.who.User})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, map[string]any{"nodes": nodes, "jobs": jobs})
}

// mark writes into the nodes of a compute that they are to be evicted, unless it is a dry run, and
// returns their names. The control loop does the rest.
func (e eviction) mark(tx *store.Tx, compute *store.Doc, by string) ([]string, error) {
	docs, err := target.NodeDocs(tx, compute.Workspace, compute.Name)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, d := range docs {
		n, err := target.Node(d)
		if err != nil {
			return nil, err
		}
		if !e.hits(n) {
			continue
		}
		if !n.Low && !e.Simulate {
			return nil, berth.Errorf(berth.Conflict, "compute %s is dedicated: its nodes are never reclaimed; use --simulate to rehearse what an eviction would do to its jobs", compute.Name)
		}
		names = append(names, n.Name)
		if e.DryRun {
			continue
		}
		n.Evict, n.Why = berth.EvictReclaim, "the node was reclaimed (evicted by "+by+")"
		if e.Simulate {
			n.Evict, n.Why = berth.EvictSimulate, "an eviction drill by "+by
		}
		if err := store.SetState(d, n); err != nil {
			return nil, err
		}
		if err := tx.Save(d); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// jobsOn is the jobs with a task on one of these nodes.
func jobsOn(tx *store.Tx, nodes []string) ([]string, error) {
	tasks, err := tx.ActiveTasks()
	if err != nil {
		return nil, err
	}
	jobs := []string{}
	for _, t := range tasks {
		if slices.Contains(nodes, t.Node) && !slices.Contains(jobs, t.Job) {
			jobs = append(jobs, t.Job)
		}
	}
	return jobs, nil
}
