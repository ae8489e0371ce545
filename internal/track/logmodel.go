package track

import "encoding/json"

const tagModelHistory = "mlflow.log-model.history"

// logModel is how clients before 3 tell of a model: it becomes a tag of the run.
func logModel(c *call) (any, error) {
	id, text := c.runID(), c.need("model_json")
	if err := c.done(); err != nil {
		return nil, err
	}
	v, err := parseJSON([]byte(text))
	m, ok := v.(object)
	if err != nil || !ok {
		return nil, invalid("Malformed model info. \n %s \n is not a valid JSON.", beginning(text))
	}
	var lacks []string
	for _, k := range []string{"artifact_path", "flavors", "utc_time_created", "run_id"} {
		if _, ok := m[k]; !ok {
			lacks = append(lacks, k)
		}
	}
	if lacks != nil {
		return nil, invalid("Model json is missing mandatory fields: %s", setOf(lacks))
	}
	return empty, c.changeRun(id, func(x *change, r *run) error {
		if err := r.mustBeActive(); err != nil {
			return err
		}
		var history []json.RawMessage
		if old := r.Tags[tagModelHistory]; old != "" && json.Unmarshal([]byte(old), &history) != nil {
			history = nil
		}
		b, err := json.Marshal(append(history, json.RawMessage(text)))
		if err != nil {
			return invalid("Malformed model info. \n %s \n is not a valid JSON.", beginning(text))
		}
		if len(b) > maxTagValue {
			return invalid("The models logged by run %s need more than %d characters", id, maxTagValue)
		}
		r.setTag(pair{tagModelHistory, string(b)})
		return nil
	})
}
