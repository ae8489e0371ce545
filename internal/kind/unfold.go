package kind

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/berthml/berth"
)

// A pipeline may have so many steps in all, and be so deep.
const (
	mostSteps = 1000
	mostDepth = 16
)

var errTooLarge = berth.Errorf(berth.Limit, "a pipeline can have %d steps in all, and be %d deep", mostSteps, mostDepth)

// maxChild is how long the name of a step's job may get before it is cut.
const maxChild = 200

// ChildName is what the job of a step is called, unless that is taken.
func ChildName(pipeline, node string) string {
	name := pipeline + "_" + node
	if len(name) > maxChild {
		name = name[:maxChild-17] + fmt.Sprintf("_%016x", sum(name))
	}
	return name
}

// sum is FNV-1a.
func sum(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// Unfolded is one step of a pipeline, or of a pipeline inside it, that runs a command.
type Unfolded struct {
	Path  string   // the step's name, after those of the steps it is inside of
	Root  string   // the first of these
	After []string // paths of the steps that must have completed before it begins; they stand before it
	Props map[string]any
}

// unfolder makes the documents of all steps of a pipeline, down to the commands, as they would be
// if each ran under its usual name. It refuses what could not run: every reason names the step.
type unfolder struct {
	workspace berth.Workspace
	component func(id string) (*Component, error)
	document  func(id string) (name string, body json.RawMessage, err error) // of a component
	steps     int
	out       []Unfolded
}

func (u *unfolder) pipeline(name, path string, props json.RawMessage, after []string, depth int) error {
	within := func(err error) error {
		if path == "" {
			return err
		}
		return berth.Errorf(berth.CodeOf(err), "step %s: %w", path, err)
	}
	g, err := ReadGraph(props)
	if err == nil {
		err = g.validate()
	}
	if err != nil {
		return within(err)
	}
	if u.steps += len(g.Jobs); u.steps > mostSteps || depth > mostDepth {
		return within(errTooLarge)
	}
	made := map[string]map[string]any{} // outputs of steps
	commands := map[string][]string{}   // paths of the commands a step consists of
	m := Maker{Graph: g, Name: name, Workspace: u.workspace, Output: func(node, out string) (berth.JobOutput, bool) {
		o, ok := made[node][out].(map[string]any)
		if !ok {
			return berth.JobOutput{}, false
		}
		return outputOf(ChildName(name, node), out, o), true
	}}
	for _, node := range g.order() {
		n := g.Jobs[node]
		c, err := n.component(u.component)
		if err != nil {
			return within(berth.Errorf(berth.CodeOf(err), "step %s: %w", node, err))
		}
		p, err := m.Make(node, c)
		if err != nil {
			return within(err)
		}
		made[node] = p["outputs"].(map[string]any)
		at := node
		if path != "" {
			at = path + "." + node
		}
		before := slices.Clone(after)
		for _, need := range n.needs() {
			before = append(before, commands[need]...)
		}
		if p["jobType"] != "Pipeline" {
			if commands[node], err = u.step(ChildName(name, node), at, p, u.last(before), depth+1); err != nil {
				return err
			}
			continue
		}
		raw, err := json.Marshal(p)
		if err != nil {
			return err
		}
		inner, err := ReadGraph(raw)
		if err != nil {
			return within(berth.Errorf(berth.CodeOf(err), "step %s: %w", node, err))
		}
		written := inner.written()
		maps.DeleteFunc(made[node], func(out string, _ any) bool { return !written[out] })
		first := len(u.out)
		if err := u.pipeline(ChildName(name, node), at, raw, before, depth+1); err != nil {
			return err
		}
		for _, inner := range u.out[first:] {
			commands[node] = append(commands[node], inner.Path)
		}
	}
	return nil
}

// last is paths without those that others of them come after anyway.
func (u *unfolder) last(paths []string) []string {
	early := map[string]bool{}
	for i := len(u.out) - 1; i >= 0; i-- {
		if s := u.out[i]; early[s.Path] || slices.Contains(paths, s.Path) {
			for _, before := range s.After {
				early[before] = true
			}
		}
	}
	return slices.DeleteFunc(paths, func(p string) bool { return early[p] })
}

func rootOf(path string) string {
	for i := range len(path) {
		if path[i] == '.' {
			return path[:i]
		}
	}
	return path
}

// outputOf is an output of a job with the place it has.
func outputOf(job, name string, o map[string]any) berth.JobOutput {
	text := func(k string) string {
		s, _ := o[k].(string)
		return s
	}
	out := berth.JobOutput{Type: text("jobOutputType"), Mode: text("mode"), URI: text("uri")}
	out.URI = out.Place(job, name)
	return out
}

// order is the steps so that each comes after those it needs.
func (g *Graph) order() []string {
	var out []string
	seen := map[string]bool{}
	var visit func(string)
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		for _, n := range g.Jobs[name].needs() {
			visit(n)
		}
		out = append(out, name)
	}
	for _, name := range g.Nodes() {
		visit(name)
	}
	return out
}
