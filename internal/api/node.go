package api

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// computeService serves what is asked of a compute's nodes.
type computeService struct {
	db   *store.DB
	docs *documentService
}

// nodes reads the nodes of a compute, and its state as of the same moment.
func (s *computeService) nodes(c *call, d *store.Doc, st berth.ComputeState) (out []berth.Node, _ berth.ComputeState, err error) {
	err = s.db.View(c.ctx(), func(tx *store.Tx) error {
		if out, err = nodesOf(tx, d.Workspace, d.Name); err != nil {
			return err
		}
		now, err := tx.Get(d.Workspace, d.Kind, d.Name, "")
		if berth.CodeOf(err) == berth.NotFound {
			return nil
		}
		if err == nil {
			st, err = computeState(now)
		}
		return err
	})
	return out, st, err
}

func nodesOf(tx *store.Tx, workspace, compute string) ([]berth.Node, error) {
	docs, err := tx.List(store.Query{Workspace: workspace, Kind: kindNode, Parent: strings.ToLower(compute), Asc: true, Limit: maxNodes})
	if err != nil {
		return nil, err
	}
	out := make([]berth.Node, len(docs))
	for i, nd := range docs {
		if err := json.Unmarshal(nd.Own, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// listNodes lists the nodes of a cluster, with what runs on them.
func listNodes(c *call, r *resource, name, _ string) error {
	d, err := c.s.docs.load(c, r, name, "")
	if err != nil {
		return err
	}
	value := []any{}
	err = c.s.DB.View(c.ctx(), func(tx *store.Tx) error {
		nodes, err := nodesOf(tx, d.Workspace, d.Name)
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

// evictNodes takes nodes of a cluster away from their jobs, for good or as a drill (ours).
func evictNodes(c *call, r *resource, name, _ string) error {
	var ask struct {
		Node     string `json:"node"`
		Simulate bool   `json:"simulate"`
		DryRun   bool   `json:"dryRun"`
	}
	if err := c.into(&ask); err != nil {
		return err
	}
	hit, jobs := []string{}, []string{}
	err := c.s.DB.Update(c.ctx(), func(tx *store.Tx) error {
		hit, jobs = hit[:0], jobs[:0]
		d, err := tx.Get(c.ws.Key(), r.Collection, name, "")
		if err != nil {
			return c.missing(err, r, name, "")
		}
		docs, err := tx.List(store.Query{Workspace: d.Workspace, Kind: kindNode, Parent: strings.ToLower(d.Name), Asc: true, Limit: maxNodes})
		if err != nil {
			return err
		}
		for _, nd := range docs {
			var n berth.Node
			if err := json.Unmarshal(nd.Own, &n); err != nil {
				return err
			}
			if (ask.Node != "" && !strings.EqualFold(ask.Node, n.Name)) || n.Evict != "" || (n.State != berth.NodeIdle && n.State != berth.NodeRunning) {
				continue
			}
			if !n.Low && !ask.Simulate {
				return berth.Errorf(berth.Conflict, "compute %s is dedicated: its nodes are never reclaimed; use --simulate to rehearse what an eviction would do to its jobs", d.Name)
			}
			n.Evict, n.Why = berth.EvictReclaim, "the node was reclaimed (evicted by "+c.who.User+")"
			if ask.Simulate {
				n.Evict, n.Why = berth.EvictSimulate, "an eviction drill by "+c.who.User
			}
			hit = append(hit, n.Name)
			if ask.DryRun {
				continue
			}
			if nd.Own, err = json.Marshal(n); err != nil {
				return err
			}
			if err := tx.Save(nd); err != nil {
				return err
			}
		}
		tasks, err := tx.ActiveTasks()
		if err != nil {
			return err
		}
		for _, t := range tasks {
			if slices.Contains(hit, t.Node) && !slices.Contains(jobs, t.Job) {
				jobs = append(jobs, t.Job)
			}
		}
		if len(hit) == 0 {
			if ask.Node != "" {
				return berth.Errorf(berth.NotFound, "compute %s has no node %q that could be taken away; `berth compute list-nodes -n %s` shows what there is", d.Name, ask.Node, d.Name)
			}
			return nil
		}
		if ask.DryRun {
			return nil
		}
		tx.Emit(berth.Event{Workspace: d.Workspace, Subject: "computes/" + d.Name, Type: berth.EventComputes, Reason: "eviction of " + strings.Join(hit, ", ") + " asked for by " + c.who.User})
		return nil
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, map[string]any{"nodes": hit, "jobs": jobs})
}
