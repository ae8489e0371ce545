package control

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/space"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// stepParents takes the next step of each pipeline that was touched or whose steps changed, after
// the steps themselves: the jobs of steps that may begin are created in this very transaction. What
// changes a pipeline may change the one it is a step of.
func (cy *cycle) stepParents() error {
	for k, j := range cy.jobs {
		if j.pipeline {
			cy.parents = append(cy.parents, k)
		}
	}
	slices.SortFunc(cy.parents, func(a, b jobKey) int { return strings.Compare(a.workspace+"\x00"+a.name, b.workspace+"\x00"+b.name) })
	for len(cy.parents) > 0 {
		k := cy.parents[0]
		cy.parents = cy.parents[1:]
		cy.at = k
		j, err := cy.job(k)
		if err != nil {
			return err
		}
		if j == nil || !j.pipeline {
			continue
		}
		if waits, err := cy.waitForLog(j); err != nil || waits {
			if err != nil {
				return err
			}
			continue
		}
		if err := cy.stepParent(j); err != nil {
			return err
		}
		if err := cy.save(j); err != nil {
			return err
		}
		if j.state, err = job.State(j.doc); err != nil {
			return err
		}
		if err := cy.queueLog(j); err != nil {
			return err
		}
	}
	cy.at = jobKey{}
	return nil
}

// stepParent creates and cancels the jobs of steps until there is nothing to do at once.
func (cy *cycle) stepParent(j *jobWork) error {
	if berth.JobStatus(j.doc.Status).Terminal() {
		return nil
	}
	if j.state.Times.Started.IsZero() {
		if err := cy.registerLog(j); err != nil {
			return err
		}
	}
	j.children = map[string]kind.Child{}
	for _, p := range j.state.Steps {
		if p.Job != "" && !p.Status.Terminal() {
			if err := cy.readChild(j, p.Node, p.Job); err != nil {
				return err
			}
		}
	}
	for {
		s, err := j.next()
		if err != nil || len(s.Begin)+len(s.Cancel) == 0 {
			return err
		}
		j.state = s.State
		for _, node := range s.Begin {
			if err := cy.beginStep(j, node); err != nil {
				return err
			}
		}
		for _, node := range s.Cancel {
			if err := cy.cancelStep(j, node); err != nil {
				return err
			}
		}
	}
}

// readChild notes what the job of a step says.
func (cy *cycle) readChild(j *jobWork, node, name string) error {
	d, err := cy.tx.Get(j.doc.Workspace, "jobs", name, "")
	if berth.CodeOf(err) == berth.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	st, err := job.State(d)
	if err != nil {
		j.children[node] = kind.Child{Status: berth.Failed, Reason: err.Error(), Ended: cy.now}
		return nil //nolint:nilerr // the step has failed for it, and the pipeline goes on
	}
	if st.Parent != j.doc.Name || st.Node != node {
		return nil // another job of that name: ours was deleted
	}
	c := kind.Child{Status: berth.JobStatus(d.Status), Reason: st.Reason, Cancel: st.Cancel, Ended: st.Times.Ended}
	if c.Status.Terminal() && c.Ended.IsZero() {
		c.Ended = cy.now
	}
	j.children[node] = c
	return nil
}

// beginStep creates the job of a step. What cannot begin has failed.
func (cy *cycle) beginStep(j *jobWork, node string) error {
	i := slices.IndexFunc(j.state.Steps, func(p berth.PipelineStep) bool { return p.Node == node })
	p := &j.state.Steps[i]
	d, err := cy.childJob(j, p)
	if err != nil {
		if berth.CodeOf(err) == berth.Unavailable {
			return err
		}
		p.Status, p.Reason, p.Ended = berth.Failed, err.Error(), cy.now
		return nil
	}
	if err := cy.passReserve(j, p, d); err != nil {
		return err
	}
	p.Job, p.Status, p.Began, p.Reserved = d.Name, berth.NotStarted, cy.now, 0
	j.children[node] = kind.Child{Status: berth.NotStarted}
	if err := cy.tx.Insert(d); err != nil {
		return err
	}
	if err := space.NoteTags(cy.tx, d); err != nil {
		return err
	}
	cy.tx.Emit(berth.Event{
		Workspace: d.Workspace, Subject: "jobs/" + d.Name, Type: berth.EventJobCreated, Reason: fmt.Sprintf("step %s of pipeline %s", node, j.doc.Name),
	})
	return nil
}

// passReserve gives a step's part of what the pipeline holds of budgets to the step's job.
func (cy *cycle) passReserve(j *jobWork, p *berth.PipelineStep, child *store.Doc) error {
	if p.Reserved == 0 {
		return nil
	}
	part, rest := j.state, j.state
	part.Reserved, rest.Reserved = p.Reserved, max(0, j.state.Reserved-p.Reserved)
	err := cost.Release(cy.tx, child.Workspace, child.CreatedBy, j.state)
	for _, st := range []berth.JobState{part, rest} {
		if err == nil {
			err = cost.Take(cy.tx, child.Workspace, child.CreatedBy, st)
		}
	}
	j.state.Reserved = rest.Reserved
	return err
}

// childJob is the document of the job that runs a step.
func (cy *cycle) childJob(j *jobWork, p *berth.PipelineStep) (*store.Doc, error) {
	ws, _, err := cy.workspace(j.doc.Workspace)
	if err != nil {
		return nil, err
	}
	var missing error
	parent := kind.Parent{
		Name: j.doc.Name, Props: j.props, Workspace: ws, Depth: j.state.Depth,
		Component: func(id string) (string, json.RawMessage, error) {
			c, err := locate.Component(cy.tx, ws, id)
			if err != nil {
				return "", nil, err
			}
			return c.Name, c.Body, nil
		},
		Output: func(node, name string) (berth.JobOutput, bool) {
			o, ok, err := cy.stepOutput(j, node, name)
			if err != nil {
				missing = err
			}
			return o, ok
		},
	}
	made, err := j.composite.Child(parent, p.Node)
	if missing != nil {
		return nil, missing
	}
	if err != nil {
		return nil, err
	}
	st := berth.JobState{
		Compute: j.state.Compute, Times: berth.Waterfall{Submitted: cy.now}, Reason: "accepted", Parent: j.doc.Name, Node: p.Node,
		Reserved: p.Reserved, ReservedIn: j.state.ReservedIn, Admin: j.state.Admin, Depth: j.state.Depth + 1,
	}
	if st.Reserved == 0 {
		st.ReservedIn = ""
	}
	if err := cy.checkChild(j, parent, made, &st); err != nil {
		return nil, err
	}
	own, err := json.Marshal(st)
	if err != nil {
		return nil, err
	}
	d := &store.Doc{
		Workspace: j.doc.Workspace, Kind: "jobs", Status: string(berth.NotStarted), CreatedBy: j.doc.CreatedBy, Parent: made.Experiment,
		Body: made.Body, Own: own,
	}
	d.Name, err = cy.childName(j, p.Node)
	return d, err
}

// checkChild refuses a child that may not run, and writes where it goes and what it may begin.
func (cy *cycle) checkChild(j *jobWork, of kind.Parent, made kind.ChildJob, st *berth.JobState) error {
	k, err := cy.c.o.KindOf(made.Type)
	if err != nil {
		return err
	}
	commands := 1
	if c, ok := k.(kind.Composite); !ok {
		st.Compute, err = cy.chooseCompute(j, of.Workspace, made.Body)
	} else if commands, err = countCommands(c, of, made); err == nil {
		st.Left = &commands
	}
	if err != nil {
		return err
	}
	return spend(&j.state, commands)
}

// countCommands is how many commands a child that has children itself runs. Its components may have
// changed since its parent was checked.
func countCommands(k kind.Composite, of kind.Parent, made kind.ChildJob) (int, error) {
	var v struct{ Properties json.RawMessage }
	if err := json.Unmarshal(made.Body, &v); err != nil {
		return 0, err
	}
	of.Props, of.Output = v.Properties, nil
	of.Depth++
	if err := k.Validate(of.Props); err != nil {
		return 0, err
	}
	all, err := k.Unfold(of)
	return len(all), err
}

// spend takes commands from those that a job may begin.
func spend(st *berth.JobState, commands int) error {
	if st.Left == nil {
		return nil
	}
	left := *st.Left - commands
	if left < 0 {
		return berth.Errorf(berth.Limit, "its component has changed since the job was submitted, and would run %d commands where %d are left of those that were checked; submit the job again", commands, *st.Left)
	}
	st.Left = &left
	return nil
}

// childName is a name for the job of a step that no other job has, and none of somebody else had.
func (cy *cycle) childName(j *jobWork, node string) (string, error) {
	for n := 1; ; n++ {
		name := kind.ChildName(j.doc.Name, node)
		if n > 1 {
			name += fmt.Sprintf("_%d", n)
		}
		_, err := cy.tx.Get(j.doc.Workspace, "jobs", name, "")
		switch {
		case err == nil:
			continue
		case berth.CodeOf(err) != berth.NotFound:
			return "", err
		}
		if cy.c.o.CheckJob == nil {
			return name, nil
		}
		if err := cy.c.o.CheckJob(cy.tx, j.doc.Workspace, name, j.doc.CreatedBy); berth.CodeOf(err) != berth.Conflict {
			return name, err
		}
	}
}

// chooseCompute is the compute of a step. Whether its user may use it is checked again: the
// component of the step may have changed since the pipeline was submitted.
func (cy *cycle) chooseCompute(j *jobWork, ws berth.Workspace, body []byte) (string, error) {
	var v struct {
		Properties berth.CommandJob `json:"properties"`
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return "", berth.Errorf(berth.Invalid, "properties: %w", err)
	}
	name, err := target.Chooser{
		Tx: cy.tx, Workspace: ws, User: j.doc.CreatedBy, Admin: j.state.Admin, Location: cy.c.o.Location, NoLocal: cy.c.o.Local.Off,
		Size: func(name string, _ bool) (berth.Size, error) {
			cat, err := cy.loadCatalogue()
			if err != nil {
				return berth.Size{}, err
			}
			size, ok := cat.sizes.Find(name)
			if !ok {
				return size, berth.Errorf(berth.Invalid, "size %s is no longer known to this server", name)
			}
			return size, nil
		},
	}.Of(v.Properties)
	// it is up to this loop to remove that pool: it must not wait for it here
	if berth.CodeOf(err) == berth.Unavailable {
		err = berth.Errorf(berth.Conflict, "%w", err)
	}
	return name, err
}

// stepOutput is an output of a step that has ended.
func (cy *cycle) stepOutput(j *jobWork, node, name string) (o berth.JobOutput, ok bool, err error) {
	i := slices.IndexFunc(j.state.Steps, func(p berth.PipelineStep) bool { return p.Node == node })
	if i < 0 || j.state.Steps[i].Job == "" {
		return o, false, nil
	}
	job := j.state.Steps[i].Job
	d, err := cy.tx.Get(j.doc.Workspace, "jobs", job, "")
	if berth.CodeOf(err) == berth.NotFound {
		return o, false, nil
	}
	if err != nil {
		return o, false, err
	}
	var v struct {
		Properties struct {
			Outputs map[string]berth.JobOutput `json:"outputs"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return o, false, err
	}
	o, ok = v.Properties.Outputs[name]
	o.URI = o.Place(d.Name, name)
	return o, ok, nil
}

// cancelStep asks the job of a step to end, for the reason the pipeline ends for.
func (cy *cycle) cancelStep(j *jobWork, node string) error {
	i := slices.IndexFunc(j.state.Steps, func(p berth.PipelineStep) bool { return p.Node == node })
	k := jobKey{j.doc.Workspace, j.state.Steps[i].Job}
	c := j.children[node]
	c.Cancel = true
	j.children[node] = c
	child, err := cy.job(k)
	if err != nil || child == nil || berth.JobStatus(child.doc.Status).Terminal() {
		return err
	}
	stop := job.Stop{Cause: "peer", Why: "another step of the pipeline failed"}
	switch {
	case j.fault != "":
		stop.Why = "an internal error of this server ended its pipeline: " + j.fault
	case j.state.Cancel:
		stop = job.Stop{Cause: j.state.StopCause, Why: j.state.StopWhy, Event: "cancel of pipeline " + j.doc.Name + " requested"}
	}
	if err := job.Cancel(cy.tx, child.doc, stop); err != nil {
		return err
	}
	child.jobView = cy.c.jobCache.decode(k, child.doc, cy.c.o.KindOf)
	return nil
}

// emitStepEvents emits an event for each step that began or ended.
func (cy *cycle) emitStepEvents(j *jobWork, s kind.Step) {
	was, _ := job.State(j.doc) // it was read before
	type stepEvent struct {
		line   int
		step   berth.PipelineStep
		reason string
	}
	var events []stepEvent
	for i, p := range s.State.Steps {
		var old berth.PipelineStep
		if i < len(was.Steps) {
			old = was.Steps[i]
		}
		if p.FirstLine != old.FirstLine {
			events = append(events, stepEvent{p.FirstLine, p, fmt.Sprintf("step %s begins as job %s", p.Node, p.Job)})
		}
		if p.LastLine != old.LastLine {
			events = append(events, stepEvent{p.LastLine, p, fmt.Sprintf("step %s is %s: %s", p.Node, p.Status, p.Reason)})
		}
	}
	slices.SortFunc(events, func(a, b stepEvent) int { return a.line - b.line })
	for _, e := range events {
		data, _ := json.Marshal(e.step) // it holds nothing that cannot be
		cy.tx.Emit(berth.Event{Workspace: j.doc.Workspace, Subject: "jobs/" + j.doc.Name, Type: berth.EventJobStep, Reason: e.reason, Data: data})
	}
}
