package kind

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/berthml/berth"
)

// Steps of a pipeline that are of another kind than command and pipeline: what the step says, over
// what its component says if it has one, becomes the properties of its job, as far as its kind lets
// a step say it.

// otherKind reports whether a type in lower case is one beside command and pipeline that can be a
// step.
func otherKind(typ string) bool {
	_, ok := kinds[typ].(Stepper)
	return ok
}

// readOwn keeps the steps that may be of other kinds as they were sent.
func (g *Graph) readOwn(props json.RawMessage) error {
	var all struct {
		Jobs map[string]map[string]any `json:"jobs"`
	}
	for name, n := range g.Jobs {
		if n.Type != "" && !otherKind(strings.ToLower(n.Type)) {
			continue
		}
		if all.Jobs == nil {
			if err := json.Unmarshal(props, &all); err != nil {
				return berth.Errorf(berth.Invalid, "properties: %s", jsonReason(err))
			}
		}
		n.Own = all.Jobs[name]
	}
	return nil
}

// component is the component of a step. One that names none declares what it is given.
func (n *Node) component(find func(id string) (*Component, error)) (*Component, error) {
	if n.ComponentID != "" || !otherKind(strings.ToLower(n.Type)) {
		return find(n.ComponentID)
	}
	c := &Component{Type: n.Type, Inline: true, Inputs: map[string]*ComponentInput{}, Outputs: map[string]*ComponentIO{}}
	for name := range n.Inputs {
		c.Inputs[name] = &ComponentInput{}
	}
	for name := range n.Outputs {
		c.Outputs[name] = &ComponentIO{}
	}
	return c, nil
}

// notProps are the members of steps and components that are not properties of the job, or that Make
// writes itself.
var notProps = []string{
	"type", "name", "version", "component", "componentId", "computeId", "display_name", "description", "inputs", "outputs", "tags",
	"properties", "is_deterministic", "_source", "$schema",
}

// other adds what a job of another kind has: only what its kind lets a step give.
func (m Maker) other(p map[string]any, n *Node, c *Component, compute string) error {
	p["jobType"] = wireName(c.Type)
	if compute != "" {
		p["computeId"] = m.id(compute, "computes")
	}
	stepper, ok := kinds[strings.ToLower(c.Type)].(Stepper)
	if !ok {
		return berth.Errorf(berth.Unsupported, "jobs of type %s cannot be steps of a pipeline", c.Type)
	}
	allowed := stepper.StepProps()
	for _, from := range []map[string]any{c.Own, n.Own} {
		for _, key := range slices.Sorted(maps.Keys(from)) {
			if slices.Contains(notProps, key) {
				continue
			}
			if !slices.Contains(allowed, camel(key)) {
				return berth.Errorf(berth.Invalid, "%s is not a setting of a step of type %s; it has %s", key, c.Type, strings.Join(allowed, ", "))
			}
			v, err := m.value(from[key])
			if err != nil {
				return berth.Errorf(berth.Invalid, "%s: %w", key, err)
			}
			p[camel(key)] = v
		}
	}
	if k, ok := stepper.(interface {
		settle(p map[string]any, id func(text, collection string) string) error
	}); ok {
		return k.settle(p, m.id)
	}
	return nil
}

// step adds the commands of a step that is no pipeline, and gives their paths.
func (u *unfolder) step(name, at string, props map[string]any, before []string, depth int) (paths []string, err error) {
	jobType, _ := props["jobType"].(string)
	k, err := Of(jobType)
	if err != nil {
		return nil, err
	}
	composite, ok := k.(Composite)
	if !ok {
		u.out = append(u.out, Unfolded{Path: at, Root: rootOf(at), After: before, Props: props})
		return []string{at}, nil
	}
	within := func(err error) error { return berth.Errorf(berth.CodeOf(err), "step %s: %w", at, err) }
	raw, err := json.Marshal(props)
	if err != nil {
		return nil, err
	}
	if depth > mostDepth {
		return nil, within(errTooLarge)
	}
	if err := composite.Validate(raw); err != nil {
		return nil, within(err)
	}
	all, err := composite.Unfold(Parent{Name: name, Props: raw, Workspace: u.workspace, Component: u.document, Depth: depth})
	if err != nil {
		return nil, within(err)
	}
	if u.steps += len(all); u.steps > mostSteps {
		return nil, within(errTooLarge)
	}
	for _, s := range all {
		after := slices.Clone(before)
		if len(s.After) > 0 {
			after = nil
		}
		for _, need := range s.After {
			after = append(after, at+"."+need)
		}
		s.Path, s.Root, s.After = at+"."+s.Path, rootOf(at), after
		u.out = append(u.out, s)
		paths = append(paths, s.Path)
	}
	return paths, nil
}
