package spec

import (
	"sort"
	"strings"
)

// automlNode is a node that runs automated machine learning: it travels in its YAML form.
func (s *scope) automlNode(g *graph, name string, v *value) any {
	t, ok := s.automlTask(v)
	if !ok {
		return nil
	}
	m := s.mark()
	check := *s
	check.nodes = false
	t.table.fill(check.into(tree{}), v.only(t.table.names()))
	known := append([]string{
		"type", "name", "description", "experiment_name", "display_name", "inputs", "outputs", "compute",
		"properties", "tags", "resources", "queue_settings", "identity", "environment_id", "environment_variables", "services",
		"id", "status", "comment",
	}, t.table.names()...)
	out := tree{"type": "automl", "name": name, "properties": tree{}, "tags": tree{}}
	if !strings.HasPrefix(pythonSnake(v.textOf("task")), "text_") {
		out["log_verbosity"] = "info"
	}
	for _, p := range v.pairs {
		if i := sort.SearchStrings(sorted(known), p.key); i >= len(known) || sorted(known)[i] != p.key {
			s.in(p.key).failWith(p.at, nearest(p.key, known), "unknown field")
			continue
		}
		out[p.key] = s.automlField(t, p.key, p.val)
	}
	for _, fd := range t.table.fields {
		if fd.name == "primary_metric" && v.get("primary_metric") == nil && fd.def != nil {
			out["primary_metric"] = pythonSnake(fd.def.(string))
		}
	}
	out["name"] = name
	for _, key := range []string{"description", "experiment_name", "inputs", "id", "status"} {
		delete(out, key)
	}
	if id, ok := out["compute"].(string); ok && strings.HasPrefix(id, "/") {
		out["compute"] = "azureml:" + id
	}
	if strings.HasPrefix(pythonSnake(v.textOf("task")), "text_") {
		limits := out.sub("limits")
		for _, key := range []string{"max_nodes", "max_trials"} {
			if limits[key] == nil {
				limits[key] = 1
			}
		}
	}
	n := &node{graph: g, name: name, word: "automl", inline: true, run: v}
	out["outputs"] = n.outputs(s.in("outputs"))
	if s.failed(m) {
		return nil
	}
	if !g.placed && !v.has("compute") {
		s.in("compute").fail(v, "there is no compute: name one here, in the pipeline's compute or in settings.default_compute")
	}
	return out
}

func sorted(words []string) []string {
	out := append([]string(nil), words...)
	sort.Strings(out)
	return out
}

// automlField is one field of a node in the form it travels in.
func (s *scope) automlField(t typ, key string, v *value) any {
	here := s.in(key)
	switch key {
	case "task", "primary_metric", "log_verbosity":
		return pythonSnake(v.text)
	case "compute":
		return cluster.read(here, v)
	case "queue_settings":
		return asWritten(queueSettings).read(here, v)
	case "resources":
		return resources.read(here, v)
	case "identity":
		return jobIdentity.read(here, v)
	case "featurization", "training":
		return snaked(t.table.retyped(key, v))
	case "limits", "training_parameters", "forecasting":
		return t.table.retyped(key, v)
	case "sweep":
		return sweepText(v)
	case "search_space":
		var all []any
		for _, space := range v.items {
			one := tree{}
			for _, p := range space.pairs {
				one[p.key] = searched(parameterType(t, p.key)).read(here, p.val)
			}
			all = append(all, one)
		}
		return all
	}
	return v.raw()
}

// parameterType is what a setting of a task's models holds.
func parameterType(task typ, name string) typ {
	for _, fd := range task.table.fields {
		if fd.name == "training_parameters" {
			for _, p := range fd.typ.table.fields {
				if p.name == name {
					return p.typ
				}
			}
		}
	}
	return anything
}

// retyped is a field of a table in its YAML form, with numbers and flags that were written as text.
func (t *table) retyped(key string, v *value) any {
	for _, fd := range t.fields {
		switch {
		case fd.name != key:
		case fd.typ.table != nil && v.shape == mapping:
			out := tree{}
			for _, p := range v.pairs {
				out[p.key] = fd.typ.table.retyped(p.key, p.val)
			}
			return out
		case v.shape == str && bound(v.text):
			return v.text
		case fd.typ.name == flag.name:
			return readFlag(&scope{load: &load{}}, v)
		case fd.typ.name == decimal.name:
			return readDecimal(&scope{load: &load{}}, v)
		default:
			if n, ok := wholeOf(v); ok && fd.typ.name != text.name {
				return number(n.String())
			}
		}
	}
	return v.raw()
}

// snaked is v with the words of its modes and algorithms in snake_case.
func snaked(v any) any {
	m, ok := v.(tree)
	if !ok {
		return v
	}
	for _, key := range []string{"mode", "training_mode"} {
		if w, ok := m[key].(string); ok {
			m[key] = pythonSnake(w)
		}
	}
	for _, key := range []string{"blocked_transformers", "allowed_training_algorithms", "blocked_training_algorithms"} {
		if words, ok := m[key].([]any); ok {
			for i, w := range words {
				if t, ok := w.(string); ok {
					words[i] = pythonSnake(t)
				}
			}
		}
	}
	return m
}

// sweepText is the sweep of a node, its policy with all its numbers.
func sweepText(v *value) any {
	m, ok := lowered(v).(tree)
	if !ok {
		return v.raw()
	}
	if policy, ok := m["early_termination"].(tree); ok {
		keys := []string{"evaluation_interval", "delay_evaluation"}
		if policy["type"] == "bandit" {
			keys = append(keys, "slack_factor", "slack_amount")
		}
		for _, key := range keys {
			if policy[key] == nil {
				policy[key] = 0
			}
		}
	}
	return m
}
