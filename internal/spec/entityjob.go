package spec

import (
	"fmt"
	"strings"
)

// job shows a job by its type.
func (e *entity) job() (tree, bool) {
	words := map[string]string{"command": "command", "sweep": "sweep", "pipeline": "pipeline", "spark": "spark", "automl": "automl", "finetuning": "finetuning"}
	word, ok := words[strings.ToLower(e.base.text("jobType"))]
	if !ok {
		return e.other("jobType", otherJob)
	}
	t := jobTypes.get()[word]
	if word == "automl" {
		t = obj(f("outputs", outputs), f("resources", resources), f("queue_settings", queueSettings), jobCommon)
	}
	out := e.table(t.table)
	out["type"] = word
	if s := e.base["status"]; s != nil {
		out["status"] = s
	}
	if id, ok := out["id"].(string); ok {
		out["id"] = "azureml:" + strings.TrimPrefix(id, "azureml:")
	}
	switch word {
	case "pipeline":
		if set, ok := asTree(e.base["settings"]); ok {
			out["settings"] = showSettings(set)
		}
		if id := e.base["componentId"]; id != nil {
			out["component"] = showAsset(id)
		}
		jobs, _ := asTree(e.base["jobs"])
		nodes := tree{}
		for name, n := range jobs {
			nodes[name] = showNode(n)
		}
		out["jobs"] = nodes
	case "automl":
		if details, ok := asTree(e.base["taskDetails"]); ok {
			e.task(out, details)
		}
	case "finetuning":
		if details, ok := asTree(e.base["fineTuningDetails"]); ok {
			for k, v := range details {
				out[snake(k)] = v
			}
		}
	}
	return out, true
}

// task shows the task of automated machine learning.
func (e *entity) task(out, details tree) {
	word := pythonSnake(details.text("taskType"))
	out["task"] = word
	t, ok := automlTasks.get()[word]
	if !ok {
		return
	}
	shown, _ := asTree(t.table.show(details))
	for k, v := range shown {
		out[k] = v
	}
}

func showSettings(set tree) tree {
	out := tree{}
	for k, v := range set {
		switch k {
		case "_source":
		case "default_compute", "default_datastore":
			if out[k] = showName(v); out[k] == "azureml:serverless" {
				out[k] = "serverless"
			}
		default:
			out[k] = v
		}
	}
	return out
}

// showNode is a node of a pipeline: it is kept in its YAML form but for its references.
func showNode(n any) any {
	m, ok := asTree(n)
	if !ok {
		return n
	}
	out := tree{}
	for k, v := range m {
		switch k {
		case "_source", "name":
		case "componentId":
			out["component"] = showAsset(v)
		case "computeId":
			if out["compute"] = showName(v); out["compute"] == "azureml:local" {
				out["compute"] = "local"
			}
		case "inputs", "outputs":
			out[k] = showNodeIO(v)
		case "limits", "distribution", "resources":
			out[k] = showNodePart(v)
		default:
			out[k] = v
		}
	}
	return out
}

// showNodePart is what a node says of how it runs, without the marks of the API.
func showNodePart(v any) any {
	m, ok := asTree(v)
	if !ok {
		return v
	}
	out := tree{}
	for k, e := range m {
		empty, ok := asTree(e)
		switch {
		case k == "job_limits_type", k == "properties" && ok && len(empty) == 0:
		case k == "distribution_type":
			out["type"] = strings.ToLower(fmt.Sprint(e))
		case k == "timeout":
			out[k] = seconds.show(e)
		default:
			out[k] = e
		}
	}
	return out
}

func showNodeIO(v any) any {
	m, ok := asTree(v)
	if !ok {
		return v
	}
	out := tree{}
	for name, one := range m {
		in, ok := asTree(one)
		switch {
		case !ok:
			out[name] = one
		case in["value"] != nil:
			out[name] = in["value"]
			if text, ok := in["value"].(string); ok && strings.HasPrefix(text, "${{") && strings.HasSuffix(text, "}}") && in["job_input_type"] != nil {
				out[name] = tree{"path": text} // bound to another's
			}
		default:
			shown := tree{}
			for k, val := range in {
				switch k {
				case "job_input_type", "job_output_type":
					shown["type"] = val
				case "uri":
					shown["path"] = showAsset(val)
				case "mode":
					shown["mode"] = showMode(val)
				default:
					shown[k] = val
				}
			}
			out[name] = shown
		}
	}
	return out
}

func showMode(v any) any {
	if w := inputMode.show(v); w != v {
		return w
	}
	return outputMode.show(v)
}
