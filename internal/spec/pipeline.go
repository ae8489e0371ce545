package spec

import (
	"strings"
)

var pipelineJob = later(pipelineJobParts)

func pipelineJobParts() []part {
	return []part{
		is("jobType", "Pipeline"),
		f("type", enum("pipeline"), unsent),
		f("inputs", named(input, groupName, "input"), def(tree{})),
		f("outputs", outputs, def(tree{})),
		f("settings", settings),
		f("jobs", anything, unsent),
		f("component", anything, unsent),
		jobCommon,
		then(readPipeline),
	}
}

// settings stay in snake_case, and keys the table does not know are kept.
var settings = typ{name: "a mapping", readFunc: func(s *scope, v *value) any {
	sub := *s
	sub.nodes = true
	return obj(
		keep,
		f("default_datastore", reference("datastores")),
		f("default_compute", oneOf(enum("serverless"), reference("computes"))),
		f("continue_on_step_failure", flag),
		f("force_rerun", flag),
	).read(&sub, v)
}}

// reference is azureml:NAME of an unversioned resource.
func reference(collection string) typ {
	return typ{name: "a reference", readFunc: func(s *scope, v *value) any {
		t, ok := readText(s, v).(string)
		if !ok {
			return nil
		}
		if s.bind && bound(t) {
			return t
		}
		if !strings.HasPrefix(t, "azureml:") {
			s.fail(v, "%s is not a reference; write azureml:NAME or azureml: followed by a full resource ID", describe(v))
			return nil
		}
		return s.armID(collection, t)
	}}
}

var nodeName = re(`^[a-z_][a-z0-9_]*$`)

// readPipeline reads the nodes of a pipeline job, its own or those of the component it runs.
func readPipeline(s *scope, v *value) {
	set, ok := asTree(s.out["settings"])
	if !ok {
		set = tree{}
	}
	if word, _ := set["default_compute"].(string); word == "serverless" {
		set["default_compute"] = s.armID("computes", word)
	}
	s.out["settings"] = set
	if ins, ok := asTree(s.out["inputs"]); ok {
		for name, in := range ins { // an empty text is not a value
			if t, ok := asTree(in); ok && t["value"] == "" {
				delete(ins, name)
			}
		}
	}
	if _, ok := set["_source"]; !ok {
		set["_source"] = "YAML.JOB"
	}
	placed := v.has("compute") || v.get("settings").has("default_compute")
	switch ref := v.get("component"); {
	case ref != nil && v.has("jobs"):
		s.in("component").fail(ref, "jobs and component cannot be used together; remove one of them")
	case ref != nil:
		set["_source"] = "REMOTE.WORKSPACE.JOB"
		s.runComponent(v, ref, placed)
	default:
		g := &graph{top: v, placed: placed}
		s.out["jobs"] = g.read(s.in("jobs"))
		s.checkEnds(v)
	}
}

// runComponent makes a job of a pipeline component: it names the component, takes over its title
// and its outputs.
func (s *scope) runComponent(v, ref *value, placed bool) {
	here := s.in("component")
	switch {
	case ref.shape != str:
		here.fail(ref, "must be a path or a reference, not %s", ref.shape)
		return
	case remote(ref.text):
		switch {
		case registryForm.MatchString(ref.text):
			s.out["componentId"] = ref.text
		case strings.HasPrefix(ref.text, "azureml://subscriptions/"), here.checkAsset(ref, "components", false):
			s.out["componentId"] = strings.TrimPrefix(ref.text, "azureml:") // the service finds it
		}
		return
	case strings.HasPrefix(ref.text, "file:"):
		here.fail(ref, "write the path without the file: prefix")
		return
	}
	comp := here.follow(ref, ref.text)
	if comp == nil {
		return
	}
	if comp.textOf("type") != "pipeline" {
		here.fail(ref, "%s is not a pipeline component; use one of type pipeline", ref.text)
		return
	}
	id := here.anonymousComponent(comp, "YAML.COMPONENT")
	if id == "" {
		return
	}
	s.out["componentId"] = id
	if title := comp.textOf("display_name"); title != "" && !v.has("display_name") {
		s.out["displayName"] = title
	}
	if about := comp.textOf("description"); about != "" && !v.has("description") {
		s.out["description"] = about
	}
	outs := s.out.sub("outputs")
	for _, p := range comp.get("outputs").entries() {
		if outs[p.key] == nil {
			outs[p.key] = tree{"jobOutputType": orFolder(p.val.textOf("type"))}
		}
	}
	ins, ok := asTree(s.out["inputs"])
	if !ok {
		return // they are wrong, and that was said
	}
	for name := range ins {
		if !(&node{comp: comp}).knows("inputs", name) {
			delete(ins, name)
		}
	}
	for _, p := range comp.get("inputs").entries() {
		if d := p.val.get("default"); d != nil && d.scalar() && ins[p.key] == nil && !v.get("inputs").isGroup(p.key) {
			ins[p.key] = s.literalInput(s.in("inputs."+p.key).parameterText(d, p.val.textOf("type")))
		}
		optional := p.val.get("optional")
		if !v.get("inputs").has(p.key) && !p.val.has("default") && (optional == nil || !optional.yes) {
			s.in("inputs."+p.key).fail(v, "is required by the component")
		}
	}
	if !placed {
		s.in("jobs").unplaced(comp, map[*value]bool{})
	}
}

func orFolder(kind string) string {
	if kind == "" {
		return "uri_folder"
	}
	return kind
}

// checkEnds checks the jobs that run before and after all others.
func (s *scope) checkEnds(v *value) {
	set := v.get("settings")
	first, last := set.get("on_init"), set.get("on_finalize")
	for _, end := range []*value{first, last} {
		if end == nil {
			continue
		}
		here := s.in("settings.on_init")
		if end == last {
			here = s.in("settings.on_finalize")
		}
		node := v.get("jobs").get(end.text)
		switch {
		case node == nil:
			here.fail(end, "%s is not a job in the pipeline", describe(end))
		case first != nil && last != nil && first.text == last.text:
			here.fail(end, "on_init and on_finalize must be different jobs")
		case connected(v.get("jobs"), end.text):
			here.fail(end, "%s must not be connected to other jobs", end.text)
		}
	}
	ends := 0
	for _, p := range v.get("jobs").entries() {
		if p.key == set.textOf("on_init") || p.key == set.textOf("on_finalize") {
			ends++
		}
	}
	if (first != nil || last != nil) && len(v.get("jobs").entries()) == ends {
		s.in("jobs").fail(v, "must include at least one job besides on_init and on_finalize")
	}
}

// connected says whether a node takes from another node or gives to one.
func connected(jobs *value, name string) bool {
	for _, node := range jobs.entries() {
		for _, in := range node.val.get("inputs").entries() {
			text := in.val.text
			if in.val.shape == mapping {
				text = in.val.textOf("path")
			}
			path, ok := binding(text)
			if ok && len(path) > 2 && path[0] == "parent" && path[1] == "jobs" && (node.key == name || path[2] == name) {
				return true
			}
		}
	}
	return false
}

// pipelineComponent is a pipeline to be used as a node.
var pipelineComponent = later(pipelineComponentParts)

func pipelineComponentParts() []part {
	return []part{
		keep,
		f("is_deterministic", flag),
		componentCommon,
		f("type", enum("pipeline"), required),
		f("jobs", anything, unsent),
		then(func(s *scope, v *value) {
			g := &graph{top: v, placed: true}
			s.out["jobs"] = g.read(s.in("jobs"))
			g.optional(s)
		}),
	}
}
