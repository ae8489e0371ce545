package spec

import (
	"strings"
)

// io reads the inputs and outputs of a node into out.
func (n *node) io(s *scope, out tree) {
	if in := n.inputs(s.in("inputs")); in.some() {
		out["inputs"] = in
	}
	if o := n.outputs(s.in("outputs")); o.some() {
		out["outputs"] = o
	}
}

// knows says whether the component declares a name; a registered one may declare anything.
func (n *node) knows(group, name string) bool {
	if n.comp == nil || n.inline {
		return true
	}
	decl := n.comp.get(group)
	if decl.get(name) != nil {
		return true
	}
	for _, p := range decl.entries() { // a group of inputs
		if strings.HasPrefix(p.key, name+".") || strings.HasPrefix(name, p.key+".") {
			return true
		}
	}
	return false
}

func (n *node) inputs(s *scope) *dict {
	v := n.run.get("inputs")
	if v == nil {
		return nil
	}
	if v.shape != mapping {
		s.fail(v, "must be a mapping, not %s", v.shape)
		return nil
	}
	out := newDict(len(v.pairs))
	for _, p := range v.pairs {
		here := s.in(p.key)
		val := p.val
		if n.word == "sweep" && n.run.get("search_space").has(p.key) {
			continue
		}
		if n.comp.get("inputs").isGroup(p.key) {
			if val.shape != mapping {
				here.fail(val, "is a group of inputs; write a mapping")
				continue
			}
			n.group(here, p, out)
			continue
		}
		if kind := n.comp.get("inputs").get(p.key).textOf("type"); !n.inline && isPort(kind) && val.scalar() && val.shape != str && val.shape != null {
			here.fail(val, "is of type %s and takes a path, not %s", kind, describe(val))
			continue
		}
		if here.oldExpression(val) {
			continue
		}
		got := input.read(here, n.asData(p.key, val))
		if got != nil && n.knows("inputs", p.key) {
			out.add(p.key, got)
		}
	}
	return out
}

// oldExpression refuses the names a pipeline's inputs and steps had once.
func (s *scope) oldExpression(v *value) bool {
	at := v
	if v.shape == mapping {
		at = v.get("path")
	}
	if at == nil || at.shape != str {
		return false
	}
	path, ok := binding(at.text)
	if !ok || len(path) < 2 || path[0] != "inputs" && path[0] != "jobs" {
		return false
	}
	s.fail(at, "%s must be written as ${{parent.%s}} in a pipeline", at.text, strings.Join(path, "."))
	return true
}

// asData makes a path of a plain text where the component declares data: x: ./folder is x: {path:
// ./folder}.
func (n *node) asData(name string, v *value) *value {
	kind := n.comp.get("inputs").get(name).textOf("type")
	if n.inline || v.shape != str || bound(v.text) || kind == "path" || !isPort(kind) {
		return v
	}
	return v.newMap().with("type", v.newText(kind)).with("path", v)
}

func isPort(kind string) bool {
	for _, t := range portTypes {
		if t == kind {
			return true
		}
	}
	return false
}

// isGroup says whether names below name are declared: a.b and a.c for a.
func (v *value) isGroup(name string) bool {
	for _, p := range v.entries() {
		if strings.HasPrefix(p.key, name+".") {
			return true
		}
	}
	return false
}

// group flattens a group of inputs: {g: {a: 1}} is g.a.
func (n *node) group(s *scope, p pair, out *dict) {
	for _, q := range p.val.pairs {
		if got := input.read(s.in(q.key), q.val); got != nil && n.knows("inputs", p.key+"."+q.key) {
			out.add(p.key+"."+q.key, got)
		}
	}
}

var nodeOutput = later(nodeOutputParts)

func nodeOutputParts() []part {
	return []part{
		f("type", enum(portTypes...), to("jobOutputType"), def("uri_folder")),
		f("mode", outputMode),
		f("path", text, to("uri")),
		f("name", text),
		f("version", version),
		then(func(s *scope, v *value) {
			if name := v.get("name"); name != nil && !assetName.MatchString(name.text) {
				s.in("name").fail(name, "%s is not a valid asset name; use at most 255 letters, digits, '-' and '_'", describe(name))
			}
			if v.has("version") && !v.has("name") {
				s.in("version").fail(v.get("version"), "requires name to be set")
			}
		}),
	}
}

func (n *node) outputs(s *scope) *dict {
	v := n.run.get("outputs")
	if v == nil {
		return nil
	}
	if v.shape != mapping {
		s.fail(v, "must be a mapping, not %s", v.shape)
		return nil
	}
	out := newDict(len(v.pairs))
	for _, p := range v.pairs {
		here := s.in(p.key)
		if p.val.shape == null {
			continue // what the component declares
		}
		got := n.output(here, p.key, p.val)
		if got != nil && n.knows("outputs", p.key) {
			out.add(p.key, got)
		}
	}
	return out
}

// outputBinding is an output of the pipeline.
var outputBinding = typ{name: "an expression", readFunc: func(s *scope, v *value) any {
	if path, ok := binding(v.text); v.shape != str || !ok || len(path) < 3 || path[0] != "parent" || path[1] != "outputs" {
		s.fail(v, "%s is not an output of the pipeline; write ${{parent.outputs.NAME}}", describe(v))
		return nil
	}
	return tree{"type": "literal", "value": v.text}
}}

// output is one output of a node: bound to an output of the pipeline, or with settings of its own.
func (n *node) output(s *scope, name string, v *value) any {
	if v.shape == str {
		return outputBinding.read(s, v)
	}
	got, _ := asTree(nodeOutput.read(s, v))
	if got == nil {
		return nil
	}
	if path, ok := binding(v.textOf("path")); ok && len(path) > 2 && path[0] == "parent" && path[1] == "outputs" {
		bound := tree{"type": "literal", "value": v.textOf("path")}
		for _, key := range []string{"mode", "name", "version"} {
			if got[key] != nil {
				bound[key] = got[key]
			}
		}
		return bound
	}
	if n.comp.get("outputs").get(name).textOf("type") == "uri_file" && !n.inline {
		got["job_output_type"] = "uri_file"
	}
	return got
}

// checks are the rules over a node and its component.
func (n *node) checks(s *scope, v *value, out tree) {
	if n.comp != nil && !n.inline {
		given := v.get("inputs")
		for _, p := range n.comp.get("inputs").entries() {
			opt := p.val.get("optional")
			if n.word == "sweep" && v.get("search_space").has(p.key) {
				continue
			}
			if given.has(p.key) || given.has(strings.SplitN(p.key, ".", 2)[0]) || p.val.has("default") || opt != nil && opt.yes {
				continue
			}
			s.in("inputs."+p.key).fail(v, "is required by the component")
		}
	}
	if n.word == "spark" {
		if n.comp != nil {
			s.sparkChecks(n.run, n.run.get("conf"), n.run.get("entry"), n.comp.get("code"))
		}
		if n.comp == nil && v.has("compute") && v.has("resources") {
			s.in("resources").fail(v.get("resources"), "compute and resources cannot be used together; remove one of them")
		}
		if n.comp != nil { // else the modes the component declares are not known here
			s.sparkModes(v, n.comp)
		}
		if args := v.get("args"); n.inline && args != nil && args.shape == str {
			s.in("args").checkExpressions(args, args.text, map[string]*value{"inputs": v.get("inputs")})
		}
		if res, ok := asTree(out["resources"]); ok && n.inline { // an inline node keeps the word as it is written
			res["instance_type"] = v.get("resources").textOf("instance_type")
		}
		if out["identity"] == nil {
			s.into(out).sparkIdentity(v)
		}
		return
	}
	if n.word == "parallel" && n.inline { // the client drops its title and tags, and leaves the identity as it is written
		delete(out, "display_name")
		delete(out, "tags")
		if who := v.get("identity"); who != nil {
			out["identity"] = lowered(who)
		}
	}
	if !n.graph.placed && n.word != "pipeline" && !v.has("compute") {
		s.in("compute").fail(v, "is required here, as the pipeline's compute, or as settings.default_compute")
	}
	if n.word == "pipeline" && n.comp != nil && !n.graph.placed {
		s.unplaced(n.comp, map[*value]bool{})
	}
}

// unplaced reports the nodes of a nested pipeline that no compute was found for. seen are the
// pipelines that were looked at: one that names itself has no end, and one that many name is
// reported once.
func (s *scope) unplaced(comp *value, seen map[*value]bool) {
	if seen[comp] {
		return
	}
	seen[comp] = true
	for _, p := range comp.get("jobs").entries() {
		here := s.in("jobs." + p.key)
		word := p.val.textOf("type")
		switch sub := s.localComponent(p.val); {
		case word == "pipeline" && sub != nil:
			here.unplaced(sub, seen)
		case word != "spark" && word != "pipeline" && !p.val.has("compute"):
			here.in("compute").fail(p.val, "is required here, as the pipeline's compute, or as settings.default_compute")
		}
	}
}

// synthesized are the fields of an inline node that make up its component.
var synthesized = lazy[map[string][]string]{make: func() map[string][]string {
	return map[string][]string{
		"command":       {"tags", "description", "command", "code", "environment", "resources", "distribution"},
		"parallel":      {"task", "input_data", "mini_batch_size", "partition_keys", "logging_level", "max_concurrency_per_instance", "error_threshold", "mini_batch_error_threshold", "retry_settings", "resources"},
		"spark":         {"tags", "description", "properties", "code", "entry", "py_files", "jars", "files", "archives", "conf", "environment", "args"},
		"data_transfer": {"task", "data_copy_mode", "tags", "description"},
	}
}}

// synthesize writes the component an inline node amounts to: what it runs, and inputs and outputs
// with their types.
func (n *node) synthesize(s *scope, v *value) *value {
	keys, ok := synthesized.get()[n.word]
	if !ok || n.word == "data_transfer" && v.textOf("task") != "copy_data" {
		return nil
	}
	comp := v.newMap()
	comp.set("type", v.newText(n.word))
	for _, key := range keys {
		w := v.get(key)
		if w == nil || w.shape == null {
			continue
		}
		// What a component of this kind says must not depend on the pipeline; the node says it
		// instead.
		if n.word == "parallel" && key != "task" && key != "input_data" && w.holdsBinding() {
			continue
		}
		if key == "conf" && dynamic(w) && !w.has(sparkCount) && w.has(sparkMin) {
			w = w.with(sparkCount, w.get(sparkMin))
		}
		comp.set(key, w)
	}
	if in := v.get("inputs"); len(in.entries()) > 0 {
		all := v.newMap()
		for _, p := range in.pairs {
			all.set(p.key, n.declare(s.in("inputs."+p.key), p.val))
		}
		comp.set("inputs", all)
	}
	if out := v.get("outputs"); len(out.entries()) > 0 {
		all := v.newMap()
		for _, p := range out.pairs {
			all.set(p.key, n.declareOutput(s.in("outputs."+p.key), p.val))
		}
		comp.set("outputs", all)
	}
	return comp
}

// holdsBinding says whether an expression stands anywhere in v.
func (v *value) holdsBinding() bool {
	for _, it := range v.items {
		if it.holdsBinding() {
			return true
		}
	}
	for _, p := range v.pairs {
		if p.val.holdsBinding() {
			return true
		}
	}
	return v.shape == str && bound(v.text)
}

// declare is the declaration of an input with this value.
func (n *node) declare(s *scope, v *value) *value {
	decl := v.newMap()
	put := func(kind, mode string) *value {
		if kind == "" {
			kind = "uri_folder"
		}
		decl.set("type", v.newText(kind))
		if mode != "" {
			decl.set("mode", v.newText(strings.ToLower(mode)))
		}
		return decl
	}
	if v.shape == mapping && v.get("value") != nil {
		v = v.get("value")
	}
	switch {
	case v.shape == mapping:
		return put(strings.ToLower(v.textOf("type")), v.textOf("mode"))
	case v.shape == str:
		// With blanks around the path the client takes it for plain text.
		if path, ok := binding(v.text); ok && len(path) > 2 && strings.HasPrefix(v.text, "${{parent.") && (path[1] == "inputs" || path[1] == "jobs") {
			return put(n.graph.source(s, v, path))
		}
	}
	put(ioType(v), "")
	decl.set("default", v)
	return decl
}

// declareOutput is the declaration of an output with this value.
func (n *node) declareOutput(s *scope, v *value) *value {
	decl := v.newMap()
	kind, mode := "uri_folder", ""
	switch {
	case v.shape == str:
		if path, ok := binding(v.text); ok {
			kind, mode = n.graph.source(s, v, path)
		}
	case v.shape == mapping:
		kind, mode = ioType(v), v.textOf("mode")
	}
	if kind == "" {
		kind = "uri_folder"
	}
	decl.set("type", v.newText(strings.ToLower(kind)))
	if mode != "" {
		decl.set("mode", v.newText(strings.ToLower(mode)))
	}
	return decl
}
