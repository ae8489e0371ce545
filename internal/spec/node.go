package spec

import (
	"slices"
	"strings"
)

// node reads one node of a pipeline.
func (s *scope) node(g *graph, name string, v *value) any {
	if v.shape != mapping {
		s.fail(v, "a node must be a mapping, not %s", v.shape)
		return nil
	}
	comp := s.localComponent(v)
	word, ok := s.nodeType(v, comp)
	if !ok {
		return nil
	}
	if word == "spark" {
		v, comp = fullConf(s, v), fullConf(s, comp)
	}
	if word == "automl" {
		return s.automlNode(g, name, v)
	}
	if s.otherNodeType(word) {
		return s.otherNode(g, name, word, v)
	}
	n := &node{graph: g, name: name, word: word, comp: comp}
	n.inline = v.get("component") == nil && v.get("trial") == nil
	if n.inline {
		n.comp = n.synthesize(s, v)
		for _, key := range []string{"code", "environment"} {
			if w := v.get(key); w != nil && w.shape == str && bound(w.text) {
				s.in(key).fail(w, "cannot be an expression: it defines what the node runs")
			}
		}
	}
	n.run = n.inherit(v)
	t := n.table(s)
	m := s.mark()
	own := *s
	own.plain = n.inline && word == "command"
	out, _ := asTree(t.read(&own, n.run))
	if out == nil {
		return nil
	}
	out["name"], out["type"] = name, word
	n.io(s, out)
	n.attach(s, v, out)
	n.checks(s, v, out)
	if s.failed(m) {
		return nil
	}
	return out
}

// node is a node being read.
type node struct {
	graph  *graph
	name   string
	word   string // its type
	inline bool   // it defines what it runs itself
	comp   *value // its component when that is local, or what an inline node amounts to
	run    *value // the node with what it takes over from its component
}

// nodeTypes are the types a node can have.
var nodeTypes = []string{"command", "import", "sweep", "parallel", "pipeline", "automl", "spark", "data_transfer"}

// preview are the control-flow nodes, which only a preview of the reference takes.
var preview = lazy[map[string]bool]{make: func() map[string]bool {
	return map[string]bool{"do_while": true, "if_else": true, "parallel_for": true}
}}

// nodeType is the type of a node: what it says, else that of its component, else command.
func (s *scope) nodeType(v, comp *value) (string, bool) {
	t := v.get("type")
	if t == nil {
		if word := comp.textOf("type"); word != "" && v.get("trial") == nil {
			return strings.ToLower(word), true
		}
		task := v.get("task")
		switch {
		case v.get("trial") != nil:
			return "sweep", true
		case v.get("component") == nil && task != nil && task.shape == mapping:
			return "parallel", true
		case v.get("component") == nil && v.get("entry") != nil:
			return "spark", true
		}
		return "command", true
	}
	word := strings.ToLower(t.text)
	for _, w := range nodeTypes {
		if w == word && (t.text == word || word != "automl") {
			return word, true
		}
	}
	if s.otherNodeType(word) {
		return word, true
	}
	if preview.get()[word] {
		s.in("type").fail(t, "nodes of type %s are not supported", word)
	} else {
		s.in("type").failWith(t, nearest(word, nodeTypes), "%s is not a node type", describe(t))
	}
	return "", false
}

// nodeOf is the table of a node's fields, as they travel in the node itself.
func nodeOf(own func() []part) typ {
	return later(func() []part {
		return []part{
			f("type", text, unsent),
			f("component", anything, unsent),
			f("name", text, unsent),
			f("display_name", text),
			f("description", text, unsent),
			f("experiment_name", text, unsent),
			f("tags", jobMap),
			f("properties", jobMap),
			f("compute", cluster, to("=computeId")),
			f("inputs", anything, unsent),
			f("outputs", anything, unsent),
			readonly("id", "status", "creation_context", "log_files"),
			parts(own()),
		}
	})
}

var commandNode = nodeOf(commandNodeParts)

func commandNodeParts() []part {
	return []part{
		f("command", text, unsent),
		f("code", text, nullable, unsent),
		f("environment", checked(environment), unsent),
		f("environment_variables", freeMap),
		f("resources", resources),
		f("distribution", bindable(distribution)),
		f("limits", commandLimits),
		f("services", mapOf(service)),
		f("identity", jobIdentity),
		f("queue_settings", queueSettings),
		f("parent_job_name", text, unsent),
		readonly("parameters"),
	}
}

var sweepNode = nodeOf(sweepNodeParts)

func sweepNodeParts() []part {
	return []part{
		f("trial", anything, unsent, required),
		f("search_space", searchSpace),
		f("sampling_algorithm", asWritten(samplingAlgorithm)),
		f("objective", objective, required),
		f("early_termination", earlyTermination),
		f("limits", sweepNodeLimits, required),
		f("queue_settings", asWritten(queueSettings)),
		f("resources", obj(f("max_instance_count", whole), more(resources))),
		f("identity", jobIdentity),
		f("services", mapOf(service), unsent),
	}
}

// bindable lets an expression stand for a mapping.
func bindable(t typ) typ {
	t.solid = false
	return t
}

// checked is a type whose value is looked at and leaves nothing behind.
func checked(t typ) typ {
	read := t.read
	t.readFunc = func(s *scope, v *value) any {
		m := s.mark()
		read(s, v)
		s.errs = append(s.errs, s.back(m)...)
		return nil
	}
	return t
}

// asWritten checks a value and sends it in its YAML form, words in lower case.
func asWritten(t typ) typ {
	read := t.read
	t.readFunc = func(s *scope, v *value) any {
		m := s.mark()
		if read(s, v); s.failed(m) {
			return nil
		}
		return lowered(v)
	}
	return t
}

func lowered(v *value) any {
	switch {
	case v.shape == str && !bound(v.text):
		return strings.ToLower(v.text)
	case v.shape == mapping:
		out := tree{}
		for _, p := range v.pairs {
			out[p.key] = lowered(p.val)
		}
		return out
	}
	return v.raw()
}

var parallelNode = nodeOf(parallelNodeParts)

func parallelNodeParts() []part {
	return []part{
		f("retry_settings", obj(keep, retryFields)),
		parallelCommon,
		f("resources", resources),
		f("mini_batch_size", batchSize(func(n int64) any { return n })),
		f("partition_keys", keysText),
		f("environment_variables", textMap),
		f("identity", jobIdentity),
		then(func(s *scope, v *value) {
			if !v.has("mini_batch_size") && (v.get("component") == nil || !remote(v.textOf("component"))) {
				s.out["mini_batch_size"] = 0
			}
		}),
	}
}

var sparkNode = nodeOf(sparkNodeParts)

func sparkNodeParts() []part {
	return []part{
		f("code", text, nullable, unsent),
		f("entry", sparkEntry),
		sparkFiles,
		f("conf", typ{name: "a mapping", readFunc: func(s *scope, v *value) any {
			if confMap.read(s, v) == nil {
				return nil
			}
			return sparkConf(v, true)
		}}),
		f("args", text),
		f("environment", checked(sparkEnvironment), nullable, unsent),
		f("resources", sparkResources),
		f("identity", jobIdentity),
	}
}

var pipelineNode = nodeOf(pipelineNodeParts)

func pipelineNodeParts() []part { return []part{f("settings", freeMap, unsent)} }

// table is the table of the node's type. A node with a component keeps keys it does not know, an
// inline one refuses them.
func (n *node) table(s *scope) typ {
	var t typ
	switch n.word {
	case "command":
		t = commandNode
	case "sweep":
		t = sweepNode
	case "parallel":
		t = parallelNode
	case "spark":
		t = sparkNode
	case "pipeline":
		t = pipelineNode
	case "data_transfer":
		switch strings.ToLower(n.run.textOf("task")) {
		case "import_data":
			t = importNode
		case "export_data":
			t = exportNode
		default:
			t = copyNode
		}
	default:
		return typ{readFunc: func(s *scope, v *value) any {
			s.in("type").fail(or(v.get("type"), v), "nodes of type %s are not supported", n.word)
			return nil
		}}
	}
	if !n.inline { // its tags are anything
		t = obj(keep, f("tags", freeMap), f("comment", text), more(t))
	} else if n.word == "sweep" {
		t = obj(keep, f("comment", text), more(t))
	} else if n.word != "command" && n.word != "parallel" { // whom nobody visits
		t = obj(f("services", mapOf(service), unsent), more(t))
		switch {
		case n.word == "spark":
			t = obj(f("properties", freeMap), more(t))
		case strings.EqualFold(n.run.textOf("task"), "copy_data"):
			t = obj(f("properties", jobMap, unsent), more(t))
		}
	}
	return t
}

// inherited are the fields a node takes over from its local component when it has none of its own.
var inherited = lazy[map[string][]string]{make: func() map[string][]string {
	return map[string][]string{
		"command":  {"resources", "distribution"},
		"parallel": {"resources", "retry_settings", "input_data", "max_concurrency_per_instance", "mini_batch_error_threshold", "mini_batch_size", "partition_keys", "task"},
		"spark":    {"conf", "entry", "py_files", "jars", "files", "archives", "args"},
		// data_copy_mode of a copy is the component's affair
		"data_transfer": {"data_copy_mode"},
	}
}}

func (n *node) inherit(v *value) *value {
	out := v
	for _, key := range inherited.get()[n.word] {
		if w := n.comp.get(key); w != nil && !v.has(key) {
			out = out.with(key, w)
		}
	}
	if own, base := v.get("conf"), n.comp.get("conf"); n.word == "spark" && own != nil && base != nil && !n.inline {
		for _, p := range base.entries() {
			if !own.has(p.key) && knownConf(p.key) {
				own = own.with(p.key, p.val)
			}
		}
		out = out.with("conf", own)
	}
	return out
}

func knownConf(key string) bool {
	for _, k := range append([]string{sparkDynamic, sparkMin, sparkMax, sparkCount}, sparkMust...) {
		if k == key {
			return true
		}
	}
	return false
}

// attach makes the component resource of a local component and names it in the node.
func (n *node) attach(s *scope, v *value, out tree) {
	ref := v.get("component")
	if ref == nil {
		ref = v.get("trial")
	}
	var id string
	switch {
	case ref == nil && out["componentId"] != nil: // built in
		return
	case ref == nil && n.comp == nil:
		s.in("component").fail(v, "is required")
		return
	case ref == nil:
		id = s.anonymousComponent(n.comp, "YAML.JOB")
		out["_source"] = "YAML.JOB"
	case ref.shape == str && (registryForm.MatchString(ref.text) || strings.HasPrefix(ref.text, "azureml:")):
		here := s.in("component")
		if n.word == "sweep" && !s.in("trial").checkOwn(ref, "components") || n.word != "sweep" && !here.checkAsset(ref, "components", true) {
			return
		}
		id = s.componentID(ref.text)
		out["_source"] = "REMOTE.WORKSPACE.COMPONENT"
		if registryForm.MatchString(ref.text) {
			out["_source"] = "REMOTE.REGISTRY"
		}
	case ref.shape == str || ref.shape == mapping:
		if id = s.componentOf(n, ref); id == "" {
			return
		}
		out["_source"] = "YAML.COMPONENT"
	default:
		s.in("component").fail(ref, "must be a reference, a path or a mapping, not %s", ref.shape)
		return
	}
	if n.word == "sweep" {
		out["trial"] = tree{"componentId": id}
		return
	}
	out["componentId"] = id
}

// componentOf makes the resource of a component that is written in the node or in a file.
func (s *scope) componentOf(n *node, ref *value) string {
	here := s.in("component")
	if n.word == "pipeline" && ref.shape == mapping {
		here.fail(ref, "a pipeline component cannot be defined inline; use the path of its file or azureml:NAME:VERSION")
		return ""
	}
	if task := n.run.textOf("task"); n.word == "data_transfer" && task != "copy_data" {
		here.fail(ref, "%s runs a built-in component; remove this one", task)
		return ""
	}
	comp := ref
	if ref.shape == str {
		if comp = here.follow(ref, strings.TrimPrefix(ref.text, "file:")); comp == nil {
			return ""
		}
	}
	want := n.word
	if want == "sweep" {
		want = "command"
	}
	if word := strings.ToLower(comp.textOf("type")); comp.get("type") == nil && want != "command" || comp.get("type") != nil && word != want {
		if !(ref.shape == mapping && comp.get("type") == nil) {
			here.fail(or(comp.get("type"), ref), "the component has type %s, but the node has type %s", orCommand(word), n.word)
			return ""
		}
	}
	if comp.get("type") == nil {
		comp = comp.with("type", comp.newText(want))
	}
	source := "YAML.COMPONENT"
	if ref.shape == mapping || strings.HasPrefix(ref.text, "file:") {
		source = "YAML.JOB"
	}
	return here.anonymousComponent(comp, source)
}

func orCommand(word string) string {
	if word == "" {
		return "command"
	}
	return word
}

// componentID is the id of a registered component.
func (s *scope) componentID(ref string) string {
	if name, ok := strings.CutSuffix(strings.TrimPrefix(ref, "azureml:"), "@default"); ok && !strings.Contains(name, "/") {
		return s.workspace().ResourceID("components", name, "labels", "default")
	}
	return s.assetID("components", ref)
}

// AnonymousComponents is what components that only a pipeline uses are called.
const AnonymousComponents = "azureml_anonymous"

// anonymousComponent makes the resource of a component without a name of its own and gives its id,
// "" when it is wrong. A file that many steps name is read once, and what is wrong with it is said
// once.
func (s *scope) anonymousComponent(v *value, source string) string {
	p := used{v, source, s.bind}
	id, known := s.parts[p]
	if !known {
		id = s.readComponent(v, source)
		s.parts[p] = id
	}
	return id
}

func (s *scope) readComponent(v *value, source string) string {
	if slices.Contains(s.within, v) {
		s.fail(v, "%s refers to itself; a component cannot contain itself", v.doc.name)
		return ""
	}
	d := &draft{collection: "components", body: tree{}, anonymous: true, name: AnonymousComponents}
	sub := &scope{load: s.load, draft: d, out: d.body.sub("properties"), field: s.field, bind: s.bind}
	m := sub.mark()
	sub.depth++
	sub.within = append(sub.within, v)
	sub.component(v, source, true)
	sub.within = sub.within[:len(sub.within)-1]
	sub.depth--
	if sub.failed(m) {
		return ""
	}
	if spec, ok := asTree(sub.out["componentSpec"]); ok {
		spec["name"], spec["version"] = AnonymousComponents, "1"
	}
	d.name = AnonymousComponents
	d.version = s.contentID(d)
	s.keep(d)
	return s.workspace().ResourceID("components", d.name, "versions", d.version)
}

// contentID is a GUID made from a resource's content, local files included.
func (s *scope) contentID(d *draft) string {
	body, _ := encode(d.body)
	text := string(body)
	for _, u := range d.uploads {
		mark, _ := encode(u.Placeholder) // where it lies does not matter
		text = strings.ReplaceAll(text, strings.Trim(string(mark), `"`), "upload:"+u.Kind+":"+u.fingerprint())
	}
	x := hexSum(text)
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:32]
}
