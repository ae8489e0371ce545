package serve

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// A keeper looks after one deployment.
type keeper struct {
	l    *Loop
	key  key
	wake chan struct{}

	fails int       // steps that failed in a row
	swept int64     // the document for which sweep was done
	since time.Time // when the deployment was seen to be gone

	scaler scaler
}

// errGone says that there is no such deployment.
var errGone = errors.New("the deployment no longer exists")

// run goes from one thing to the next until the deployment is gone or ctx ends.
func (k *keeper) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait, err := k.step(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errGone):
			if k.l.forget(k) {
				return
			}
			continue
		case err != nil:
			k.fails++
			k.l.o.Log.Warn("deployment not reconciled; trying again", "endpoint", k.key.endpoint, "deployment", k.key.deployment, "err", err)
			wait = min(200*time.Millisecond<<min(k.fails, 8), 30*time.Second)
		default:
			k.fails = 0
		}
		k.sleep(ctx, wait)
	}
}

// sleep waits until something happens, or until d is over where it is not zero.
func (k *keeper) sleep(ctx context.Context, d time.Duration) {
	var over <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-ctx.Done():
	case <-k.wake:
	case <-over:
	}
}

// view is a deployment as the store has it.
type view struct {
	doc   *store.Doc
	ws    berth.Workspace
	own   locate.Storage
	state berth.DeploymentState
	jobs  map[string]*store.Doc
	far   map[string]bool // replicas that are not on this machine, by job
}

func (k *keeper) read(tx *store.Tx) (v *view, err error) {
	v = &view{jobs: map[string]*store.Doc{}, far: map[string]bool{}}
	w, err := tx.Get("", "workspaces", k.key.workspace, "")
	if err != nil {
		return nil, err
	}
	if v.ws, err = locate.WorkspaceOf(w); err != nil {
		return nil, err
	}
	if v.own, err = store.State[locate.Storage](w); err != nil {
		return nil, err
	}
	if v.doc, err = k.document(tx); err != nil {
		return nil, err
	}
	if v.state, err = store.State[berth.DeploymentState](v.doc); err != nil {
		return nil, err
	}
	for _, r := range v.state.Replicas {
		d, err := tx.Get(k.key.workspace, "jobs", r.Job, "")
		if berth.CodeOf(err) == berth.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		v.jobs[r.Job] = d
		if v.far[r.Job], err = isFar(tx, d); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// document is that of the deployment; versions are compared with case.
func (k *keeper) document(tx *store.Tx) (*store.Doc, error) {
	docs, err := tx.All(store.Query{Workspace: k.key.workspace, Kind: Kind, Name: k.key.endpoint, NoBody: true})
	if err != nil {
		return nil, err
	}
	for _, d := range docs {
		if strings.EqualFold(d.Version, k.key.deployment) {
			return tx.Get(k.key.workspace, Kind, d.Name, d.Version)
		}
	}
	return nil, berth.Errorf(berth.NotFound, "deployment %s of endpoint %s does not exist", k.key.deployment, k.key.endpoint)
}

// step does the next thing and says when to look again; 0 is when something happens.
func (k *keeper) step(ctx context.Context) (time.Duration, error) {
	var v *view
	err := k.l.o.DB.View(ctx, func(tx *store.Tx) (err error) {
		v, err = k.read(tx)
		return err
	})
	if berth.CodeOf(err) == berth.NotFound {
		return k.end(ctx)
	}
	if err != nil {
		return 0, err
	}
	k.l.follow(k.key, v.state.Replicas) // before they are looked at: what happens from now on wakes
	if err := k.sweep(ctx, v); err != nil {
		return 0, err
	}
	spec, err := ParseSpec(v.doc.Body)
	cannot := ""
	if err != nil {
		cannot = err.Error()
	}
	environment := spec.Environment
	if cannot == "" {
		if environment, err = k.environment(ctx, v, spec); err != nil {
			if berth.CodeOf(err) == berth.Unavailable {
				return 0, err
			}
			cannot = err.Error()
		}
	}
	seen := k.observe(ctx, v)
	instances, why, look := k.scale(spec, v)
	var d decision
	act := func(tx *store.Tx, write bool) error {
		now, err := k.read(tx)
		if err != nil {
			return err
		}
		s := situation{
			state: now.state, cannot: cannot, instances: instances, why: why, timeout: spec.Timeout, startup: spec.Startup,
			jobs: seen, now: tx.Now(),
		}
		if string(now.doc.Body) != string(v.doc.Body) {
			d = decision{again: time.Millisecond, state: now.state} // it was changed meanwhile
			return nil
		}
		if cannot == "" {
			endpoint, err := tx.Get(k.key.workspace, Collection, k.key.endpoint, "")
			if err != nil {
				return err
			}
			s.wanted, s.cannot = k.wanted(tx, now, spec.on(endpoint), environment)
		}
		d = decide(s)
		if !write || !d.changed(now.state) {
			return nil
		}
		return k.write(tx, now, &d)
	}
	if err := k.l.o.DB.View(ctx, func(tx *store.Tx) error { return act(tx, false) }); err != nil {
		return 0, err
	}
	if d.changed(v.state) {
		if err := k.l.o.DB.Update(ctx, func(tx *store.Tx) error { return act(tx, true) }); err != nil {
			return 0, err
		}
		k.l.follow(k.key, d.state.Replicas)
		if len(d.start) > 0 {
			return time.Millisecond, nil // a job may have ended before it was followed
		}
	}
	d.soon(look)
	return d.again, nil
}

// sweep stops the replicas of an earlier deployment of this name, once.
func (k *keeper) sweep(ctx context.Context, v *view) error {
	if k.swept == v.doc.ID {
		return nil
	}
	err := k.l.o.DB.Update(ctx, func(tx *store.Tx) error {
		now, err := k.read(tx)
		if err != nil {
			return err
		}
		jobs, err := replicaJobs(tx, k.key.workspace)
		if err != nil {
			return err
		}
		for _, j := range jobs {
			if j.of == k.key && now.jobs[j.doc.Name] == nil {
				if err := job.Cancel(tx, j.doc, job.Stop{Why: "its deployment was deleted"}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil {
		k.swept = v.doc.ID
	}
	return err
}

// wanted is the revision that a document asks for, or why there can be none.
func (k *keeper) wanted(tx *store.Tx, v *view, s Spec, environment string) (r *berth.Revision, cannot string) {
	err := s.Check(tx, v.ws)
	if err == nil {
		r, err = k.revision(tx, v, s, environment)
	}
	if err != nil {
		return nil, err.Error()
	}
	return r, ""
}

// on is the spec with what the endpoint says for all of its deployments.
func (s Spec) on(endpoint *store.Doc) Spec {
	var v struct {
		Properties struct {
			Compute string `json:"compute"`
		} `json:"properties"`
	}
	if s.Compute == "" && json.Unmarshal(endpoint.Body, &v) == nil {
		s.Compute = v.Properties.Compute
	}
	return s
}

// write carries a decision out, in one transaction.
func (k *keeper) write(tx *store.Tx, v *view, d *decision) error {
	for name, why := range d.stop {
		if doc := v.jobs[name]; doc != nil {
			if err := job.Cancel(tx, doc, job.Stop{Why: why}); err != nil {
				return err
			}
		}
	}
	for _, r := range d.start {
		name, err := k.startReplica(tx, v, r)
		if err != nil {
			if berth.CodeOf(err) == berth.Unavailable {
				return err
			}
			d.fail(err.Error())
			break
		}
		d.state.Replicas = append(d.state.Replicas, berth.Replica{Job: name, Revision: r.ID, State: berth.ReplicaStarting, Pure: r.Pure, Since: tx.Now()})
	}
	if g := d.state.Good; g != nil && (v.state.Good == nil || v.state.Good.ID != g.ID) {
		d.state.PreviousBody, d.state.GoodBody = v.state.GoodBody, v.doc.Body
	}
	for _, says := range d.says {
		k.emit(tx, v, says)
	}
	if len(d.says) == 0 {
		k.emit(tx, v, d.state.Reason)
	}
	if err := store.SetState(v.doc, d.state); err != nil {
		return err
	}
	return tx.Save(v.doc)
}

func (k *keeper) emit(tx *store.Tx, v *view, why string) {
	tx.Emit(berth.Event{Workspace: v.doc.Workspace, Subject: Collection + "/" + v.doc.Name + "/deployments/" + v.doc.Version, Type: berth.EventDeployment, Reason: why})
}

// startReplica submits the job of a replica.
func (k *keeper) startReplica(tx *store.Tx, v *view, r *berth.Revision) (string, error) {
	compute, err := k.l.o.compute(tx, v.ws, v.doc.CreatedBy, v.state.Admin, r.Job)
	if err == nil && berth.IsLocal(compute) {
		err = room(tx, v.doc.CreatedBy)
	}
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(map[string]json.RawMessage{"properties": r.Job})
	if err != nil {
		return "", err
	}
	d := &store.Doc{
		Workspace: k.key.workspace, Kind: "jobs", Name: "serve-" + k.key.endpoint + "-" + k.key.deployment + "-" + berth.NewGUID()[:8],
		Status: string(berth.NotStarted), CreatedBy: v.doc.CreatedBy, Parent: Experiment, Body: body,
	}
	err = store.SetState(d, berth.JobState{
		Compute: compute, Times: berth.Waterfall{Submitted: tx.Now()}, Reason: "accepted", Admin: v.state.Admin, Serves: v.doc.Name + "/" + v.doc.Version,
	})
	if err != nil {
		return "", err
	}
	if err := tx.Insert(d); err != nil {
		return "", err
	}
	tx.Emit(berth.Event{Workspace: d.Workspace, Subject: "jobs/" + d.Name, Type: berth.EventJobCreated, Reason: "replica of deployment " + v.doc.Version + " of endpoint " + v.doc.Name})
	return d.Name, nil
}

// endTime is how long the replicas of a deleted deployment may take to answer their last requests.
const endTime = 30 * time.Second

// end stops the replicas of a deployment that is gone, each when nobody waits for it.
func (k *keeper) end(ctx context.Context) (time.Duration, error) {
	if k.since.IsZero() {
		k.since = time.Now()
	}
	var ready []string
	left := 0
	onlyServer := k.l.o.OnlyServer(ctx)
	err := k.l.o.DB.View(ctx, func(tx *store.Tx) error {
		jobs, err := replicaJobs(tx, k.key.workspace)
		for _, j := range jobs {
			switch {
			case j.of != k.key || j.doc.Status == string(berth.CancelRequested):
			case onlyServer && k.l.o.Idle(j.doc.Name) || time.Since(k.since) > endTime:
				ready = append(ready, j.doc.Name)
			default:
				left++
			}
		}
		return err
	})
	if err == nil && len(ready) > 0 {
		err = k.l.o.DB.Update(ctx, func(tx *store.Tx) error { return k.cancel(tx, ready) })
	}
	if err != nil {
		return 0, err
	}
	if left > 0 {
		return 100 * time.Millisecond, nil
	}
	k.since = time.Time{}
	return 0, errGone
}

// cancel ends jobs of a deployment that is still gone.
func (k *keeper) cancel(tx *store.Tx, names []string) error {
	if _, err := k.document(tx); berth.CodeOf(err) != berth.NotFound {
		return err
	}
	for _, name := range names {
		d, err := tx.Get(k.key.workspace, "jobs", name, "")
		if berth.CodeOf(err) == berth.NotFound {
			continue
		}
		if err == nil {
			err = job.Cancel(tx, d, job.Stop{Why: "its deployment was deleted"})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
