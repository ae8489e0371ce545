package spec

import "strings"

// graph is a pipeline whose nodes are being read: a job, or a component.
type graph struct {
	top    *value // the mapping with inputs, outputs and jobs
	placed bool   // there is a compute for nodes that name none
}

// read reads all nodes.
func (g *graph) read(s *scope) any {
	jobs := g.top.get("jobs")
	if jobs == nil || jobs.shape == null {
		return tree{}
	}
	if jobs.shape != mapping {
		s.fail(jobs, "must be a mapping of nodes, not %s", jobs.shape)
		return nil
	}
	out := newDict(len(jobs.pairs))
	for _, p := range jobs.pairs {
		here := s.in(p.key)
		if !nodeName.MatchString(p.key) {
			here.fail(p.at, "%q is not a valid node name; use lower-case letters, digits and '_'", p.key)
			continue
		}
		here.nodes, here.bind = true, true
		if node := here.node(g, p.key, p.val); node != nil {
			out.add(p.key, node)
		}
	}
	return out
}

// source finds the type and mode of what a binding refers to. Modes of another node's output are
// its own affair.
func (g *graph) source(s *scope, at *value, path []string) (kind, mode string) {
	if len(path) < 3 || path[0] != "parent" {
		s.fail(at, "%s: the input of a node must refer to parent.inputs or parent.jobs", describe(at))
		return "", ""
	}
	switch rest := strings.Join(path[2:], "."); path[1] {
	case "inputs":
		v := g.top.get("inputs").get(rest)
		if v == nil {
			s.failWith(at, nearest(rest, keysOf(g.top.get("inputs"))), "the pipeline has no input %s", rest)
			return "", ""
		}
		return ioType(v), v.textOf("mode")
	case "outputs":
		v := g.top.get("outputs").get(rest)
		if v == nil {
			s.failWith(at, nearest(rest, keysOf(g.top.get("outputs"))), "the pipeline has no output %s", rest)
			return "", ""
		}
		return ioType(v), v.textOf("mode")
	case "jobs":
		if len(path) == 5 {
			return g.outputType(s, at, path[2], path[3], path[4]), ""
		}
	}
	s.fail(at, "%s is not a valid reference; write ${{parent.jobs.NODE.outputs.NAME}}", describe(at))
	return "", ""
}

func keysOf(v *value) []string {
	var keys []string
	for _, p := range v.entries() {
		keys = append(keys, p.key)
	}
	return keys
}

// ioType is the type of an input or output: that of a plain value, or the declared one.
func ioType(v *value) string {
	switch v.shape {
	case integer:
		return "integer"
	case float:
		return "number"
	case boolean:
		return "boolean"
	case str:
		return "string"
	case mapping:
		if w := v.get("value"); w != nil {
			return ioType(w)
		}
		if t := v.textOf("type"); t != "" {
			return t
		}
	}
	return "uri_folder"
}

// outputType is the type of an output (or input) of another node.
func (g *graph) outputType(s *scope, at *value, node, group, name string) string {
	v := g.top.get("jobs").get(node)
	if v == nil {
		s.failWith(at, nearest(node, keysOf(g.top.get("jobs"))), "the pipeline has no node %s", node)
		return ""
	}
	if strings.EqualFold(v.textOf("type"), "automl") {
		return "mltable"
	}
	if comp := s.localComponent(v); comp != nil {
		if decl := comp.get(group).get(name); decl != nil {
			return ioType(decl)
		}
	}
	own := v.get(group).get(name)
	if own == nil {
		if v.get("component") == nil && v.get("trial") == nil {
			s.failWith(at, nearest(name, keysOf(v.get(group))), "node %s has no %s %s", node, strings.TrimSuffix(group, "s"), name)
		}
		return "uri_folder"
	}
	text := own.text
	if own.shape == mapping {
		if t := own.textOf("type"); t != "" {
			return t
		}
		text = own.textOf("path")
	}
	if path, ok := binding(text); ok {
		kind, _ := g.source(s, at, path)
		return kind
	}
	return ioType(own)
}

// localComponent is the component of a node when it is written here or in a file, nil when it is
// registered or the node has none.
func (s *scope) localComponent(v *value) *value {
	ref := v.get("component")
	if ref == nil {
		ref = v.get("trial")
	}
	if ref == nil || ref.shape == mapping {
		return ref
	}
	if ref.shape != str || remote(ref.text) {
		return nil
	}
	m := s.mark()
	got := s.follow(ref, strings.TrimPrefix(ref.text, "file:"))
	_ = s.back(m) // the node itself reports a file that cannot be read
	return got
}

// optional settles which inputs of a pipeline component are optional: one that says nothing is,
// when every local component it goes to takes it as optional; one that says it is must not go where
// it is required.
func (g *graph) optional(s *scope) {
	need, used := g.needs(s)
	spec, _ := asTree(s.out["inputs"])
	for _, p := range g.top.get("inputs").entries() {
		decl, ok := asTree(spec[p.key])
		says := p.val.get("optional")
		switch {
		case !ok || !used[p.key]:
		case says == nil && !need[p.key]:
			decl["optional"] = true
		case says != nil && says.yes && need[p.key]:
			s.in("inputs."+p.key).fail(says, "is optional, but a node requires it")
		}
	}
}

// needs finds which inputs of the pipeline go to an input of a local component at all, and which to
// a required one.
func (g *graph) needs(s *scope) (need, used map[string]bool) {
	need, used = map[string]bool{}, map[string]bool{}
	for _, n := range g.top.get("jobs").entries() {
		comp := s.localComponent(n.val)
		if comp == nil {
			continue
		}
		for _, in := range n.val.get("inputs").entries() {
			text := in.val.text
			if in.val.shape == mapping {
				text = in.val.textOf("path")
			}
			path, ok := binding(text)
			if !ok || len(path) < 3 || path[0] != "parent" || path[1] != "inputs" {
				continue
			}
			name := strings.Join(path[2:], ".")
			used[name] = true
			if decl := comp.get("inputs").get(in.key); decl != nil {
				if opt := decl.get("optional"); opt == nil || !opt.yes {
					need[name] = true
				}
			}
		}
	}
	return need, used
}
