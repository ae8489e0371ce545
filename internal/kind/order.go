package kind

import (
	"encoding/json"

	"github.com/berthml/berth/internal/ordered"
)

// named are the members of steps and components whose names a user chose.
type named struct {
	Inputs      json.RawMessage `json:"inputs,omitempty"`
	Outputs     json.RawMessage `json:"outputs,omitempty"`
	Tags        json.RawMessage `json:"tags,omitempty"`
	Properties  json.RawMessage `json:"properties,omitempty"`
	Jobs        json.RawMessage `json:"jobs,omitempty"`
	Variables   json.RawMessage `json:"environmentVariables,omitempty"`
	VariablesIn json.RawMessage `json:"environment_variables,omitempty"` // as steps and components spell it
}

// StepBody is the document of the job that runs a step, of the properties that Make gave: its
// inputs and outputs are in the order in which the component declares them, its tags and the like
// in that of the pipeline's properties, then of the component's document.
func StepBody(props map[string]any, node string, pipeline, component json.RawMessage) (json.RawMessage, error) {
	var p struct {
		Jobs map[string]named `json:"jobs"`
	}
	var c struct {
		Properties struct {
			Spec named `json:"componentSpec"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(pipeline, &p); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(component, &c); err != nil {
		return nil, err
	}
	like := make([][]byte, 0, 3)
	spec := c.Properties.Spec
	for _, n := range []named{{Inputs: spec.Inputs, Outputs: spec.Outputs}, p.Jobs[node], spec} {
		if n.Variables == nil {
			n.Variables = n.VariablesIn
		}
		text, err := json.Marshal(map[string]any{"properties": n})
		if err != nil {
			return nil, err
		}
		like = append(like, text)
	}
	return ordered.Marshal(map[string]any{"properties": props}, like...)
}
