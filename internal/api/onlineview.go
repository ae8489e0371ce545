package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/serve"
	"github.com/berthml/berth/internal/store"
)

// servedView is an online endpoint with its deployments, as the store has them.
type servedView struct {
	endpoint    *store.Doc
	props       map[string]any
	traffic     map[string]int
	own         locate.Storage
	deployments []*deploymentView
}

type deploymentView struct {
	doc     *store.Doc
	state   berth.DeploymentState
	jobs    map[string]*store.Doc
	history []berth.Event
}

// served reads an endpoint, its deployments and the jobs of their replicas.
func (c *call) served(r *resource, name string) (v *servedView, err error) {
	err = c.s.DB.View(c.ctx(), func(tx *store.Tx) error {
		v = &servedView{}
		if v.endpoint, err = tx.Get(c.ws.Key(), r.Collection, name, ""); err != nil {
			return c.missing(err, r, name, "")
		}
		if _, v.props, err = bodyOf(v.endpoint); err != nil {
			return err
		}
		v.traffic = sharesOf(v.props)
		if v.own, err = locate.StorageOf(tx, c.ws.Key()); err != nil {
			return err
		}
		docs, err := tx.All(store.Query{Workspace: c.ws.Key(), Kind: serve.Kind, Name: v.endpoint.Name})
		if err != nil {
			return err
		}
		for _, d := range docs {
			one, err := viewDeployment(tx, d)
			if err != nil {
				return err
			}
			v.deployments = append(v.deployments, one)
		}
		return nil
	})
	return v, err
}

func viewDeployment(tx *store.Tx, d *store.Doc) (*deploymentView, error) {
	v := &deploymentView{doc: d, jobs: map[string]*store.Doc{}}
	var err error
	if v.state, err = store.State[berth.DeploymentState](d); err != nil {
		return nil, err
	}
	for _, r := range v.state.Replicas {
		j, err := tx.Get(d.Workspace, "jobs", r.Job, "")
		if berth.CodeOf(err) == berth.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		v.jobs[r.Job] = j
	}
	subject := *d
	subject.Kind, subject.Name = serve.Collection, d.Name+"/deployments/"+d.Version
	if v.history, err = history(tx, &subject); err != nil {
		return nil, err
	}
	v.history = v.history[max(0, len(v.history)-30):]
	return v, nil
}

// sharesOf is the traffic of an endpoint in percent, by deployment in lower case.
func sharesOf(props map[string]any) map[string]int {
	out := map[string]int{}
	for d, n := range asMap(props["traffic"]) {
		if n, ok := n.(json.Number); ok {
			share, _ := n.Int64() // checked when it was written
			out[strings.ToLower(d)] = int(share)
		}
	}
	return out
}

// usage is the replicas of a deployment and what they use.
func (c *call) usage(st berth.DeploymentState) []berth.ReplicaUsage {
	out := []berth.ReplicaUsage{}
	for _, r := range st.Replicas {
		u := berth.ReplicaUsage{Job: r.Job, State: r.State}
		if c.s.ReplicaUsage != nil {
			u.Usage = c.s.ReplicaUsage(c.ws.Key(), r.Job)
		}
		out = append(out, u)
	}
	return out
}

func (c *call) stats(d *store.Doc) berth.ServingStats {
	if c.s.Serving == nil {
		return berth.ServingStats{Statuses: map[string]int64{}}
	}
	return c.s.Serving(c.ws.Key(), d.Name, d.Version)
}

// endpointMetrics answers with what the deployments of an endpoint do and use now.
func endpointMetrics(c *call, r *resource, name, version string) error {
	if version != "" {
		return notFound(c)
	}
	return c.sendMetrics(func(tx *store.Tx) ([]*store.Doc, error) {
		d, err := tx.Get(c.ws.Key(), r.Collection, name, "")
		return []*store.Doc{d}, c.missing(err, r, name, "")
	})
}

// workspaceMetrics does so for all endpoints of a workspace.
func workspaceMetrics(c *call) error {
	if c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		return methodError(c)
	}
	return c.sendMetrics(func(tx *store.Tx) ([]*store.Doc, error) {
		return tx.All(store.Query{Workspace: c.ws.Key(), Kind: serve.Collection, Asc: true})
	})
}

// sendMetrics answers with what the deployments of endpoints do and use now.
func (c *call) sendMetrics(find func(tx *store.Tx) ([]*store.Doc, error)) error {
	out := []berth.DeploymentMetrics{}
	err := c.s.DB.View(c.ctx(), func(tx *store.Tx) error {
		out = out[:0]
		endpoints, err := find(tx)
		if err != nil {
			return err
		}
		for _, e := range endpoints {
			_, props, err := bodyOf(e)
			if err != nil {
				return err
			}
			shares := sharesOf(props)
			docs, err := tx.All(store.Query{Workspace: c.ws.Key(), Kind: serve.Kind, Name: e.Name})
			if err != nil {
				return err
			}
			for _, d := range docs {
				st, err := store.State[berth.DeploymentState](d)
				if err != nil {
					return err
				}
				out = append(out, berth.DeploymentMetrics{
					Endpoint: d.Name, Deployment: d.Version, State: st.State, Traffic: shares[strings.ToLower(d.Version)],
					Stats: c.stats(d), Replicas: c.usage(st),
				})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, map[string]any{"value": out})
}

// explainEndpoint answers with why an endpoint is as it is.
func explainEndpoint(c *call, r *resource, name, version string) error {
	if version != "" {
		return notFound(c)
	}
	v, err := c.served(r, name)
	if err != nil {
		return err
	}
	e := berth.EndpointExplanation{
		Name: v.endpoint.Name, ScoringURI: c.endpointURL(v.endpoint.Name) + "score", AuthMode: text(v.props, "authMode"),
		Traffic: map[string]int{}, Deployments: []berth.DeploymentExplanation{}, Advice: []string{},
	}
	total := 0
	for d, n := range v.traffic {
		if n > 0 {
			e.Traffic[d] = n
			total += n
		}
	}
	for _, d := range v.deployments {
		one, err := c.explainDeployment(v, d)
		if err != nil {
			return err
		}
		e.Deployments = append(e.Deployments, one)
	}
	switch {
	case len(v.deployments) == 0:
		e.Advice = append(e.Advice, "it has no deployment: create one with `berth deploy` or `berth online-deployment create`")
	case total == 0:
		for _, d := range v.deployments { // one that never answered is not worth any
			if d.state.Good != nil {
				e.Advice = append(e.Advice, "no deployment has traffic: `berth endpoint traffic "+v.endpoint.Name+" "+d.doc.Version+"=100`")
				break
			}
		}
	}
	for _, d := range v.deployments {
		if d.state.State != berth.DeploymentFailed {
			continue
		}
		text := "deployment " + d.doc.Version + " has failed: correct it and deploy it again"
		if d.state.Good != nil {
			text += ", or `berth endpoint rollback " + v.endpoint.Name + " " + d.doc.Version + "`"
		}
		e.Advice = append(e.Advice, text)
	}
	return c.send(http.StatusOK, e)
}

func (c *call) explainDeployment(v *servedView, d *deploymentView) (berth.DeploymentExplanation, error) {
	out := berth.DeploymentExplanation{
		Name: d.doc.Version, State: d.state.State, Reason: d.state.Reason, Error: d.state.Error, Compute: "local", LastDied: d.state.DeathWhy,
		Replicas: c.usage(d.state), Stats: c.stats(d.doc), History: d.history, Start: []berth.StartPhase{},
	}
	if w := d.state.Wanted; w != nil {
		out.Wanted, out.Why = *w, d.state.WantedWhy
	}
	var last *store.Doc
	for _, r := range d.state.Replicas {
		if j := d.jobs[r.Job]; j != nil && (last == nil || j.Created.After(last.Created)) {
			last = j
			if st, err := job.State(j); err == nil {
				out.Compute = st.Compute
			}
		}
	}
	if last == nil {
		return out, nil
	}
	var err error
	out.Start, err = serve.StartPhases(c.ctx(), c.s.Blobs, v.own, last)
	return out, err
}

// rollBack makes a deployment what it was before its last change.
func rollBack(c *call, r *resource, name, version string) error {
	if version == "" {
		return notFound(c)
	}
	var d *store.Doc
	err := c.s.DB.Update(c.ctx(), func(tx *store.Tx) (err error) {
		if d, err = tx.Get(c.ws.Key(), serve.Kind, name, version); err != nil {
			return c.missing(err, r, name, version)
		}
		if err := c.mayDeploy(tx, d.Name, d.Version); err != nil {
			return err
		}
		st, err := store.State[berth.DeploymentState](d)
		if err != nil {
			return err
		}
		to := st.PreviousBody
		if st.GoodBody != nil && !bytes.Equal(st.GoodBody, d.Body) {
			to = st.GoodBody // the last change failed, or is not made yet
		}
		if to == nil {
			return berth.Errorf(berth.Conflict, "deployment %s of endpoint %s has had one form only: there is nothing to go back to", d.Version, d.Name)
		}
		d.Body = bytes.Clone(to)
		if err := markDeployment(c, d, d.Own, false); err != nil {
			return err
		}
		c.emit(tx, berth.EventResourcePut, r, d.Name, d.Version)
		return tx.Save(d)
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, map[string]any{"name": d.Version, "endpoint": d.Name})
}
