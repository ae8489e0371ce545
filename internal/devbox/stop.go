package devbox

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// Times that ending takes.
const (
	jobGrace   = 30 * time.Second // for jobs that run on an instance that is stopped
	agentGrace = 15 * time.Second // for notebooks and the like
)

// takeDown ends what runs on an instance and gives its node back. state is what the instance is
// meanwhile.
func (k *keeper) takeDown(ctx context.Context, v *view, state string) (time.Duration, error) {
	if v.node != nil && v.node.State != berth.NodeLeaving {
		return 0, again(k.releaseNode(ctx, v, state))
	}
	if wait, err := k.jobsEnd(ctx, v); err != nil || wait > 0 {
		return wait, err
	}
	if v.it.Runs > 0 {
		actx, cancel := context.WithTimeout(ctx, agentGrace)
		if err := k.l.o.Agent(k.dir()).Stop(actx); err != nil && ctx.Err() == nil {
			k.l.o.Log.Debug("agent not asked to stop", "instance", k.key.name, "err", err)
		}
		cancel()
	}
	if err := k.l.o.Machine.RemoveNode(ctx, v.it.Node); err != nil {
		return 0, err
	}
	if err := destroy(Scratch(k.dir())); err != nil {
		return 0, err
	}
	k.added, k.started, k.deaths = "", 0, 0
	k.unfollow()
	return 0, again(k.change(ctx, v, func(tx *store.Tx, now *view) error {
		if err := now.dropNode(tx); err != nil {
			return err
		}
		if now.it.Want != berth.InstanceStopped {
			return nil // its next node is asked for
		}
		now.it.StopsAt, now.it.Apps, now.it.Warnings = time.Time{}, nil, nil
		if now.it.State == berth.InstanceCreateFailed || now.state.State == berth.InstanceDeleting {
			return nil
		}
		now.done("Succeeded")
		now.become(tx, berth.InstanceStopped, now.it.Reason)
		return nil
	}))
}

// releaseNode keeps new jobs away and asks those on the node to end.
func (k *keeper) releaseNode(ctx context.Context, v *view, state string) error {
	return k.change(ctx, v, func(tx *store.Tx, now *view) error {
		if now.node == nil {
			return nil
		}
		why := now.it.Reason
		now.node.State, now.node.Why = berth.NodeLeaving, why
		if err := now.saveNode(tx, now.node, false); err != nil {
			return err
		}
		if now.it.State != state && now.it.State != berth.InstanceCreateFailed {
			now.become(tx, state, why)
		}
		if now.state.Drain {
			return nil // they end first, in their own time
		}
		tasks, err := tasksOn(tx, now.node.Name)
		for _, t := range tasks {
			if err := cancelJob(tx, t, "compute instance "+now.doc.Name+" ends: "+why); err != nil {
				return err
			}
		}
		return err
	})
}

func tasksOn(tx *store.Tx, node string) ([]*berth.Task, error) {
	all, err := tx.ActiveTasks()
	if err != nil {
		return nil, err
	}
	var out []*berth.Task
	for _, t := range all {
		if t.Node == node && t.State != berth.TaskWaiting {
			out = append(out, t)
		}
	}
	return out, nil
}

// cancelJob asks the job of a task to end.
func cancelJob(tx *store.Tx, t *berth.Task, why string) error {
	d, err := tx.Get(t.Workspace, "jobs", t.Job, "")
	if berth.CodeOf(err) == berth.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return job.Cancel(tx, d, job.Stop{Cause: "canceled", Why: why})
}

// jobsEnd waits until no job is on the node, or until they had their time.
func (k *keeper) jobsEnd(ctx context.Context, v *view) (time.Duration, error) {
	if v.node == nil || k.l.o.DB.Now().Sub(v.it.Since) > jobGrace && !v.state.Drain {
		return 0, nil
	}
	left := 0
	err := k.l.o.DB.View(ctx, func(tx *store.Tx) error {
		tasks, err := tasksOn(tx, v.node.Name)
		left = len(tasks)
		return err
	})
	if left > 0 {
		return 500 * time.Millisecond, err
	}
	return 0, err
}

// dropNode removes the record of the instance's node and keeps what it cost.
func (v *view) dropNode(tx *store.Tx) error {
	if n := v.node; n != nil {
		own, err := json.Marshal(berth.Meter{
			Compute: n.Compute, Node: n.Name, Size: n.Size, Low: n.Low, Rate: n.Price, Priced: n.Priced, Currency: n.Currency, Instance: true, User: n.User, From: n.Created, To: tx.Now(),
		})
		if err != nil {
			return err
		}
		err = tx.Insert(&store.Doc{
			Workspace: v.doc.Workspace, Kind: kindMeter, Name: n.Name, Parent: target.NodeParent(n.Compute), CreatedBy: n.User,
			Body: json.RawMessage("{}"), Own: own,
		})
		if err != nil && berth.CodeOf(err) != berth.Conflict {
			return err
		}
		if err := tx.Delete(v.doc.Workspace, target.KindNode, n.Name, ""); err != nil && berth.CodeOf(err) != berth.NotFound {
			return err
		}
		data, err := json.Marshal(map[string]any{"node": n.Name, "state": ""})
		if err != nil {
			return err
		}
		v.emit(tx, berth.EventNode, "the node was released", data)
	}
	v.it.Node, v.it.Runs, v.it.Made = "", 0, 0
	return nil
}

// remove takes an instance apart for good: its node, its files, its document.
func (k *keeper) remove(ctx context.Context, v *view) (time.Duration, error) {
	if v.it.Node != "" {
		return k.takeDown(ctx, v, berth.InstanceDeleting)
	}
	if err := destroy(k.dir()); err != nil {
		return 0, err
	}
	err := k.l.o.DB.Update(ctx, func(tx *store.Tx) error {
		if err := tx.Delete(k.key.workspace, "computes", k.key.name, ""); err != nil {
			return err
		}
		tx.Emit(berth.Event{Workspace: k.key.workspace, Subject: "computes/" + v.doc.Name, Type: berth.EventResourceDel, Reason: "compute instance " + v.doc.Name + " was deleted"})
		return nil
	})
	if err != nil && berth.CodeOf(err) != berth.NotFound {
		return 0, err
	}
	return 0, errGone
}

// endOrphan ends an instance whose document is gone.
func (k *keeper) endOrphan(ctx context.Context) error {
	if err := k.l.endOrphanIn(ctx, k.dir()); err != nil {
		return err
	}
	return errGone
}

// endOrphanIn ends the instance of a directory that no document is about. Its files stay: they go
// only when somebody deletes the instance, and a database that does not know of it may be another
// one, or an older copy.
func (l *Loop) endOrphanIn(ctx context.Context, dir string) error {
	var c Config
	b, err := os.ReadFile(filepath.Join(dir, "agent.json"))
	if err == nil && json.Unmarshal(b, &c) == nil && c.Node != "" {
		if err := l.o.Machine.RemoveNode(ctx, c.Node); err != nil {
			return err
		}
	}
	if _, err := os.Stat(dir); err == nil {
		l.o.Log.Warn("leaving the files of an unknown instance in place", "dir", dir)
	}
	return destroy(Scratch(dir))
}

// sweep ends the instances that no longer exist.
func (l *Loop) sweep(ctx context.Context, keys []key) {
	known := map[string]bool{}
	for _, k := range keys {
		known[Dir(l.o.Dir, k.workspace, k.name)] = true
	}
	dirs, _ := filepath.Glob(filepath.Join(l.o.Dir, "*", "*"))
	for _, dir := range dirs {
		if known[dir] {
			continue
		}
		if err := l.endOrphanIn(ctx, dir); err != nil && ctx.Err() == nil {
			l.o.Log.Warn("unknown instance not stopped", "dir", dir, "err", err)
		}
	}
}

// destroy removes a directory, write-protected parts included.
func destroy(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if e != nil && e.IsDir() {
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
