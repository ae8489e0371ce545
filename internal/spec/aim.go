package spec

import (
	"slices"
	"strings"
)

// aim is what the --set of a job can be about before they are applied: the names of inputs and
// steps that are there. A --set that makes another is likely a slip of the pen, and one that
// changes nothing is never meant.
type aim struct {
	inputs, steps []string
	nodes         map[string][]string // the inputs of each step
}

func aimOf(v *value) aim {
	a := aim{inputs: keysOf(v.get("inputs")), steps: keysOf(v.get("jobs")), nodes: map[string][]string{}}
	for _, p := range v.get("jobs").entries() {
		a.nodes[p.key] = keysOf(p.val.get("inputs"))
	}
	return a
}

// check looks for --set that missed. What cannot have been meant is an error, what may have been is
// a warning.
func (a aim) check(v *value, sets []string) (errs, warnings Errors) {
	for _, set := range sets {
		path, _, _ := cutSet(set)
		steps, ok := split(path)
		if !ok || len(steps) < 2 {
			continue
		}
		e := Error{File: v.doc.name}
		name := steps[1].key
		switch steps[0].key {
		case "inputs":
			if slices.Contains(a.inputs, name) || v.has("component") || v.textOf("trial") != "" || mentions(v, "inputs."+name) || mentions(v, "_INPUT_"+name) {
				continue
			}
			e.Suggest = nearest(name, a.inputs)
			if e.Suggest != "" && len(steps) == 2 { // data may be found by its variable, values not
				e.Msg = "--set " + set + ": there is no input " + name
				errs = append(errs, e)
			} else if len(steps) == 2 || e.Suggest != "" {
				e.Msg = "--set " + set + ": nothing in the job mentions ${{inputs." + name + "}}"
				warnings = append(warnings, e)
			}
		case "jobs":
			if len(a.steps) > 0 && len(steps) > 2 {
				if e.Msg, e.Suggest = a.step(v, name, steps[2:]); e.Msg != "" {
					e.Msg = "--set " + set + ": " + e.Msg
					errs = append(errs, e)
				}
			}
		}
	}
	return errs, warnings
}

// step is what is wrong with a --set of the fields of a step, "" when nothing is.
func (a aim) step(v *value, name string, field []step) (msg, suggest string) {
	node := v.get("jobs").get(name)
	if !slices.Contains(a.steps, name) {
		near := nearest(name, a.steps)
		whole := slices.ContainsFunc([]string{"command", "component", "trial", "type", "task"}, node.has)
		switch {
		case near != "":
			return "there is no step " + name, near
		case !whole:
			return "there is no step " + name + "; there are " + strings.Join(a.steps, ", "), ""
		}
		return "", ""
	}
	ref := node.get("component")
	switch key := field[0].key; {
	case ref == nil && key == "inputs" && len(field) > 1:
		in := field[1].key
		if near := nearest(in, a.nodes[name]); near != "" && !slices.Contains(a.nodes[name], in) && !mentions(node, "inputs."+in) {
			return "the step " + name + " has no input " + in, near
		}
	case ref == nil || len(field) > 1 || key != "command" && key != "code" && key != "environment":
	case ref.shape == mapping:
		return "the " + key + " of the step is that of its component: set jobs." + name + ".component." + key, ""
	default:
		return "the " + key + " of the step is that of its component, " + ref.text + ", which --set does not change", ""
	}
	return "", ""
}

var wordStart = re(`^[A-Za-z0-9_-]`)

// mentions reports whether a text in v has the dotted name.
func mentions(v *value, name string) bool {
	if v == nil {
		return false
	}
	if slices.ContainsFunc(v.items, func(i *value) bool { return mentions(i, name) }) ||
		slices.ContainsFunc(v.pairs, func(p pair) bool { return mentions(p.val, name) }) {
		return true
	}
	for rest := v.text; v.shape == str; {
		_, after, found := strings.Cut(rest, name)
		if !found {
			return false
		}
		if !wordStart.MatchString(after) {
			return true
		}
		rest = after
	}
	return false
}
