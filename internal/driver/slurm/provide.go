package slurm

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// A node of a managed cluster is a job of Slurm whose script becomes `berth _node`. It is recorded,
// found again, looked after and ended as the job of a task is.

// nodeTask is the id under which the job of a node is recorded. No task has a slash in its id.
func nodeTask(cluster, name string) berth.TaskID {
	return berth.TaskID("node/" + strings.ToLower(cluster) + "/" + name)
}

// nodeGrace is how long what runs on a node has to end that is given back.
const nodeGrace = 5 * time.Second

// MakeNode is [driver.Provider.MakeNode].
func (d *Driver) MakeNode(ctx context.Context, n driver.NodeSpec) error {
	cluster := n.Boot.Cluster
	return d.start(ctx, &record{Task: nodeTask(cluster, n.Name), Cluster: cluster, Grace: nodeGrace}, d.alone(func() (work, error) { return d.nodeWork(n) }))
}

// nodeWork is the job that is a node.
func (d *Driver) nodeWork(n driver.NodeSpec) (work, error) {
	hash, home, err := d.program()
	if err != nil {
		return work{}, err
	}
	text := filler(hash, n.Boot.Home, home).Replace(scriptText+dirText) + heredoc("join.json", n.Boot.Join) + `exec "$program" _node --dir "$dir"` + "\n"
	return work{
		script: []byte(text), nodes: 1, cpus: n.CPUs, memory: n.Memory, gpus: len(n.GPUs), about: "node " + n.Name,
		site: d.settings().forSize(n.Size, n.Low),
	}, nil
}

// forSize is how the nodes of a size are submitted.
func (s site) forSize(size string, low bool) site {
	for name, x := range s.Sizes {
		if !strings.EqualFold(name, size) {
			continue
		}
		s.Partition, s.Account, s.QOS = cmp.Or(x.Partition, s.Partition), cmp.Or(x.Account, s.Account), cmp.Or(x.QOS, s.QOS)
		s.Constraint, s.limit = cmp.Or(x.Constraint, s.Constraint), cmp.Or(x.limit, s.limit)
		if low {
			s.Partition, s.QOS = cmp.Or(x.LowPartition, s.Partition), cmp.Or(x.LowQOS, s.QOS)
		}
		s.Options = append(s.Options[:len(s.Options):len(s.Options)], x.Options...)
	}
	return s
}

// MadeNodes is [driver.Provider.MadeNodes].
func (d *Driver) MadeNodes(ctx context.Context, cluster string) ([]driver.MadeNode, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.refresh(ctx); err != nil {
		return nil, err
	}
	var all []driver.MadeNode
	var at map[string]string
	for _, r := range d.records {
		if r.Cluster == "" || !strings.EqualFold(r.Cluster, cluster) || r.Job == "" && r.busy == nil {
			continue
		}
		_, name, _ := strings.Cut(strings.TrimPrefix(string(r.Task), "node/"), "/")
		n := driver.MadeNode{Name: name, Why: r.why}
		switch {
		case r.Exit != nil:
			n.Gone, n.Why = true, r.goneWhy()
			n.Taken = r.Exit.Cause == "evicted" || r.Exit.Cause == "canceled"
		case r.state == berth.TaskStarting:
			n.Why = "Slurm is starting node " + r.Node + " (CONFIGURING)"
		case r.Node != "":
			if at == nil {
				var err error
				if at, err = d.addresses(ctx); err != nil {
					return nil, err
				}
			}
			n.Address = at[r.Node]
		}
		all = append(all, n)
	}
	return all, nil
}

// goneWhy is why the job of a node has ended.
func (r *record) goneWhy() string {
	if r.Exit.OK() {
		return "Slurm's job " + r.Job + " has ended"
	}
	return r.Exit.Reason
}

// addresses are where the nodes of Slurm are reached. The mutex is held, but for the question.
func (d *Driver) addresses(ctx context.Context) (map[string]string, error) {
	d.mu.Unlock()
	defer d.mu.Lock()
	return d.slurm.addresses(ctx)
}

// UnmakeNode is [driver.Provider.UnmakeNode]. It waits for the end of the job for a while.
func (d *Driver) UnmakeNode(ctx context.Context, cluster, name string) error {
	h := handle(nodeTask(cluster, name))
	if err := d.Stop(ctx, h, driver.Stop{Grace: nodeGrace}); err != nil {
		return err
	}
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		if _, err := d.Observe(ctx); err != nil {
			return err
		}
		err := d.Remove(ctx, h)
		if berth.CodeOf(err) != berth.Conflict {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return berth.Errorf(berth.Unavailable, "Slurm has not ended the job of node %s yet", name)
		}
	}
}
