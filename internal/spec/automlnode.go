package spec

import "strings"

// automlNodeCommon are the fields of every node that runs automated machine learning, beside those
// of its task.
var automlNodeCommon = lazyParts(func() parts {
	return parts{
		readonly("$schema", "id", "status", "creation_context", "log_files"),
		f("type", enum("automl"), required),
		f("name", text),
		f("display_name", text),
		f("description", text),
		f("experiment_name", text),
		f("comment", text),
		f("tags", jobMap, def(tree{})),
		f("properties", jobMap, def(tree{})),
		f("compute", typ{name: cluster.name, readFunc: func(s *scope, v *value) any {
			return prefixed(cluster).read(s, v)
		}}),
		f("identity", jobIdentity),
		f("services", mapOf(service)),
		f("environment_id", text),
		f("environment_variables", textMap),
		f("resources", resources),
		f("queue_settings", queueSettings),
		f("inputs", anything),
		f("outputs", anything),
	}
})

// automlNode is a node that runs automated machine learning: it travels in its YAML form.
func (s *scope) automlNode(g *graph, name string, v *value) any {
	t, ok := s.automlTask(v)
	if !ok {
		return nil
	}
	m := s.mark()
	sub := *s
	sub.nodes, sub.yaml = true, true
	out, _ := asTree(obj(automlNodeCommon, more(t)).read(&sub, v))
	task := pythonSnake(v.textOf("task"))
	out["name"], out["task"] = name, task
	if strings.HasPrefix(task, "text_") && !v.has("log_verbosity") {
		delete(out, "log_verbosity")
	}
	if task == "classification" && !v.has("primary_metric") { // another one than that of a job
		out["primary_metric"] = "accuracy"
	}
	if set, ok := asTree(out["featurization"]); ok && !v.get("featurization").has("mode") {
		delete(set, "mode")
	}
	if set, ok := asTree(out.at("training.stack_ensemble_settings")); ok && set["stack_meta_learner_train_percentage"] == nil {
		set["stack_meta_learner_train_percentage"] = number("0.2")
	}
	if who, ok := asTree(out["identity"]); ok && who["type"] == "managed" {
		who["type"] = "managed_identity"
	}
	delete(out, "inputs")
	n := &node{graph: g, name: name, word: "automl", inline: true, run: v}
	out["outputs"] = n.outputs(s.in("outputs"))
	if s.failed(m) {
		return nil
	}
	if !g.placed && !v.has("compute") {
		s.in("compute").fail(v, "is required here, as the pipeline's compute, or as settings.default_compute")
	}
	return out
}
