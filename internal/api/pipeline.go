package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

func isPipeline(props map[string]any) bool {
	return strings.EqualFold(text(props, "jobType"), "Pipeline")
}

// composite is the kind of a job that has children, nil of any other.
func (s *jobService) composite(jobType string) kind.Composite {
	k, err := s.kindOf(jobType)
	if err != nil {
		return nil
	}
	c, _ := k.(kind.Composite)
	return c
}

// checkChildren refuses a job of which a child could not run, with the child's name, and says what
// is known of the others.
func (c jobCall) checkChildren(tx *store.Tx, k kind.Composite, name string, props map[string]any, st *berth.JobState) error {
	if err := c.complete(tx, k, props); err != nil {
		return err
	}
	if err := c.checkReferences(tx, props, false); err != nil {
		return err
	}
	steps, err := c.unfold(tx, k, name, props)
	if err != nil {
		return err
	}
	c.noteRegistered(steps)
	left := len(steps)
	st.Left = &left
	total, held := cost.Ask{}, map[string]float64{}
	st.Compute = berth.LocalCompute
	choose := c.chooser(tx)
	choose.Dry = true
	for _, s := range steps {
		compute, ask, err := c.checkChild(tx, choose, name, s)
		if err != nil {
			return berth.Errorf(berth.CodeOf(err), "step %s: %w", s.Path, err)
		}
		if !berth.IsLocal(compute) && berth.IsLocal(st.Compute) {
			st.Compute = compute
		}
		if ask != nil && ask.Priced && (total.Currency == "" || total.Currency == ask.Currency) {
			total.Priced, total.Currency = true, ask.Currency
			total.Amount += ask.Amount
			held[s.Root] += ask.Amount
		}
	}
	if berth.IsLocal(st.Compute) && c.s.Local.Size() == nil {
		return nil
	}
	total.How = fmt.Sprintf("%d steps", len(steps))
	if err := c.charge(tx, total, st); err != nil || st.Reserved == 0 {
		return err
	}
	for node, amount := range held {
		st.Steps = append(st.Steps, berth.PipelineStep{Node: node, Reserved: amount})
	}
	slices.SortFunc(st.Steps, func(a, b berth.PipelineStep) int { return strings.Compare(a.Node, b.Node) })
	return nil
}

// checkChild refuses a command that could not run, and says where it goes and what it may cost.
func (c jobCall) checkChild(tx *store.Tx, choose target.Chooser, parent string, s kind.Unfolded) (compute string, ask *cost.Ask, err error) {
	raw, err := json.Marshal(s.Props)
	if err != nil {
		return "", nil, err
	}
	k, err := c.s.KindOf(orElse(text(s.Props, "jobType"), "Command"))
	if err != nil {
		return "", nil, err
	}
	if err := k.Validate(raw); err != nil {
		return "", nil, err
	}
	var v berth.CommandJob
	if err := json.Unmarshal(raw, &v); err != nil {
		return "", nil, berth.Errorf(berth.Invalid, "properties: %w", err)
	}
	if compute, err = choose.Of(v); err != nil {
		return "", nil, err
	}
	if err := c.checkServices(tx, compute, s.Props); err != nil {
		return "", nil, err
	}
	if err := c.checkReferences(tx, s.Props, false); err != nil {
		return "", nil, err
	}
	ask, err = c.ask(tx, compute, s.Props, kind.ChildName(parent, s.Root))
	return compute, ask, err
}

// anyVersion and someVersion stand for versions of assets that are not known yet: the first is of
// an output that is given the next version, the second of whatever is registered under a name.
const (
	anyVersion  = "*"
	someVersion = "@"
)

// noteRegistered notes the assets that the outputs of steps will become: other steps may name them.
func (c jobCall) noteRegistered(steps []kind.Unfolded) {
	for _, s := range steps {
		for _, v := range asMap(s.Props["outputs"]) {
			out := asMap(v)
			name := text(out, "assetName")
			if name == "" {
				continue
			}
			if c.made == nil {
				c.made = map[string]json.RawMessage{}
			}
			coll := assetKind(out)
			c.made[madeKey(coll, name, orElse(text(out, "assetVersion"), anyVersion))] = nil
			c.made[madeKey(coll, name, someVersion)] = nil
		}
	}
}

// willRegister says whether the client, or a step of the pipeline, makes an asset first.
func (c jobCall) willRegister(ref berth.Ref) bool {
	if len(c.made) == 0 || ref.Registry != "" {
		return false
	}
	if _, ok := c.willMake(ref, ref.Collection); ok {
		return true
	}
	version := anyVersion
	if ref.Version == "" {
		version = someVersion
	}
	_, ok := c.made[madeKey(ref.Collection, ref.Name, version)]
	return ok
}

// complete lets a kind write what it finds in components into a job.
func (c jobCall) complete(tx *store.Tx, k kind.Composite, props map[string]any) error {
	if k, ok := k.(kind.Completer); ok {
		return k.Complete(props, c.components(tx))
	}
	return nil
}

// adoptedOrder is a document that has what a pipeline adopts of a component in the component's
// order; nil where it adopts nothing.
func (c jobCall) adoptedOrder(tx *store.Tx, props map[string]any) []byte {
	id := text(props, "componentId")
	if id == "" {
		return nil
	}
	_, body, err := c.component(tx)(id)
	var whole struct {
		Properties struct {
			ComponentSpec struct {
				Inputs  json.RawMessage `json:"inputs,omitempty"`
				Outputs json.RawMessage `json:"outputs,omitempty"`
				Jobs    json.RawMessage `json:"jobs,omitempty"`
			} `json:"componentSpec"`
		} `json:"properties"`
	}
	if err != nil || json.Unmarshal(body, &whole) != nil {
		return nil // it was read before; the order is all that is lost
	}
	like, err := json.Marshal(map[string]any{"properties": whole.Properties.ComponentSpec})
	if err != nil {
		return nil
	}
	return like
}

// unfold is the commands that a job with children runs.
func (c jobCall) unfold(tx *store.Tx, k kind.Composite, name string, props map[string]any) ([]kind.Unfolded, error) {
	raw, err := json.Marshal(props)
	if err != nil {
		return nil, err
	}
	return k.Unfold(kind.Parent{Name: name, Props: raw, Workspace: c.ws, Component: c.component(tx)})
}

// component finds documents of components by their ids.
func (c jobCall) component(tx *store.Tx) func(id string) (name string, body json.RawMessage, err error) {
	return func(id string) (string, json.RawMessage, error) {
		if ref, err := berth.ParseRef(id, "components"); err == nil {
			if raw, ok := c.willMake(ref, "components"); ok {
				return ref.Name, raw, nil
			}
		}
		d, err := locate.Component(tx, c.ws, id)
		if err != nil {
			return "", nil, err
		}
		return d.Name, d.Body, nil
	}
}

// components reads them.
func (c jobCall) components(tx *store.Tx) func(id string) (*kind.Component, error) {
	find := c.component(tx)
	return func(id string) (*kind.Component, error) {
		name, body, err := find(id)
		if err != nil {
			return nil, err
		}
		return kind.ReadComponent(name, body)
	}
}

// isStep says whether a job is a step of a pipeline, by what we keep of it: a quote inside a text
// would have a backslash before it.
func isStep(d *store.Doc) bool { return bytes.Contains(d.Own, []byte(`"parent":"`)) }

// Properties that say which part of a pipeline a job is. Programs that run in a step look there for
// the pipeline they are in.
const (
	runSource   = "azureml.runsource"
	pipelineRun = "azureml.pipelinerunid"
)

// lineage writes them.
func lineage(properties map[string]any, st berth.JobState, k kind.Composite) {
	switch {
	case st.Parent != "":
		properties[runSource], properties[pipelineRun] = stepRun, st.Parent
	case k != nil:
		properties[runSource] = k.RunType()
	}
}

// runChildren lists the jobs of a pipeline's steps, as the run history has them.
func (s *historyService) runChildren(c *call, name string) error {
	value := []any{}
	err := s.db.View(c.ctx(), func(tx *store.Tx) error {
		d, err := tx.Get(c.ws.Key(), "jobs", name, "")
		if err != nil {
			return c.missing(err, s.docs.row("jobs"), name, "")
		}
		children, err := stepJobs(tx, d)
		for _, d := range children {
			st, err := job.State(d)
			if err != nil {
				return err
			}
			run, err := c.runDoc(tx, d, st)
			if err != nil {
				return err
			}
			value = append(value, run)
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, map[string]any{"value": value})
}

// stepJobs is the jobs of a pipeline's steps that are there.
func stepJobs(tx *store.Tx, d *store.Doc) ([]*store.Doc, error) {
	st, err := job.State(d)
	if err != nil {
		return nil, err
	}
	var out []*store.Doc
	for _, p := range st.Steps {
		if p.Job == "" {
			continue
		}
		child, err := tx.Get(d.Workspace, "jobs", p.Job, "")
		if berth.CodeOf(err) == berth.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		own, err := job.State(child)
		if err != nil {
			return nil, err
		}
		if own.Parent == d.Name && own.Node == p.Node { // not a later job of that name
			out = append(out, child)
		}
	}
	return out, nil
}

// family is a job with the jobs of its steps, and theirs.
func family(tx *store.Tx, d *store.Doc) ([]*store.Doc, error) {
	out := []*store.Doc{d}
	children, err := stepJobs(tx, d)
	if err != nil {
		return nil, err
	}
	for _, child := range children {
		more, err := family(tx, child)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// leaves refuses to take a step away from a pipeline that has not ended.
func (c jobCall) leaves(tx *store.Tx, d *store.Doc) error {
	st, err := job.State(d)
	if err != nil || st.Parent == "" {
		return err
	}
	parent, err := tx.Get(d.Workspace, "jobs", st.Parent, "")
	if berth.CodeOf(err) == berth.NotFound {
		return nil
	}
	if err == nil && !berth.JobStatus(parent.Status).Terminal() {
		return berth.Errorf(berth.Conflict, "job %s is a step of pipeline %s, which has not ended; cancel that first", d.Name, parent.Name)
	}
	return err
}

// stepAdvice names the steps to look at: those that failed, or those that are under way.
func stepAdvice(s berth.JobStatus, st berth.JobState) (out []string) {
	for _, p := range st.Steps {
		switch {
		case p.Job == "":
		case s == berth.Failed && p.Status == berth.Failed:
			out = append(out, "berth logs "+p.Job+" --tail 50")
		case s != berth.Failed && !p.Status.Terminal():
			out = append(out, "berth explain "+p.Job)
		}
	}
	return out[:min(len(out), 3)]
}

// checkComponent makes the definition of a pipeline component out of the job it is said to come
// from: its steps, and what it takes and gives as declarations. A value the job had becomes the
// default.
func checkComponent(c *call, tx *store.Tx, _, _ string, props map[string]any) error {
	spec := asMap(props["componentSpec"])
	if text(spec, "type") == "" {
		return berth.Errorf(berth.Invalid, "properties.componentSpec needs a type, such as command or pipeline")
	}
	id := text(spec, "sourceJobId")
	if id == "" || len(asMap(spec["jobs"])) > 0 {
		return nil
	}
	ref, err := berth.ParseRef(id, "jobs")
	if err != nil {
		return berth.Errorf(berth.Invalid, "componentSpec.sourceJobId: %w", err)
	}
	d, err := tx.Get(c.ws.Key(), "jobs", ref.Name, "")
	if berth.CodeOf(err) == berth.NotFound {
		return berth.Missingf("componentSpec.sourceJobId: there is no job %s in workspace %s", ref.Name, c.ws.Name)
	}
	if err != nil {
		return err
	}
	var job map[string]any
	if err := decodeJSON(d.Body, &job); err != nil {
		return err
	}
	from := asMap(job["properties"])
	if !isPipeline(from) {
		return berth.Errorf(berth.Invalid, "componentSpec.sourceJobId: job %s is not a pipeline", d.Name)
	}
	types, err := jobCall{c}.inputTypes(tx, from)
	if err != nil {
		return err
	}
	inputs, outputs := map[string]any{}, map[string]any{}
	for name, v := range asMap(from["inputs"]) {
		in := asMap(v)
		decl := map[string]any{"type": orElse(types[name], "string")}
		if strings.EqualFold(text(in, "jobInputType"), "literal") || in["jobInputType"] == nil {
			if in["value"] != nil {
				decl["default"] = in["value"]
			}
		} else {
			decl["type"] = in["jobInputType"]
		}
		inputs[name] = decl
	}
	for name, v := range asMap(from["outputs"]) {
		outputs[name] = map[string]any{"type": orElse(text(asMap(v), "jobOutputType"), "uri_folder")}
	}
	spec["type"], spec["jobs"] = "pipeline", from["jobs"]
	for k, made := range map[string]map[string]any{"inputs": inputs, "outputs": outputs} {
		if len(asMap(spec[k])) == 0 {
			spec[k] = made
		}
	}
	return nil
}

// inputTypes is what the components of a pipeline's steps declare the pipeline's values to be.
func (c jobCall) inputTypes(tx *store.Tx, props map[string]any) (map[string]string, error) {
	raw, err := json.Marshal(props)
	if err != nil {
		return nil, err
	}
	g, err := kind.ReadGraph(raw)
	if err != nil {
		return nil, err
	}
	return g.InputTypes(c.components(tx))
}
