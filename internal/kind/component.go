package kind

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// Component is the typed view of a component's specification, which is its YAML as JSON.
type Component struct {
	Type         string                     `json:"type"`
	Command      string                     `json:"command"`
	Code         string                     `json:"code"`
	Environment  json.RawMessage            `json:"environment"`
	Inputs       map[string]*ComponentInput `json:"inputs"`
	Outputs      map[string]*ComponentIO    `json:"outputs"`
	Resources    map[string]any             `json:"resources"`
	Distribution map[string]any             `json:"distribution"`
	Env          map[string]any             `json:"environment_variables"`
	Jobs         map[string]map[string]any  `json:"jobs"`
	Settings     map[string]any             `json:"settings"`
	// Inline says that it was made of a step that came without a component: what it declares of its
	// inputs was guessed by a client.
	Inline bool `json:"-"`
	// Own is the specification as it was sent, where it is of another kind than command and
	// pipeline.
	Own map[string]any `json:"-"`
}

// ReadComponent reads a component's document.
func ReadComponent(name string, body json.RawMessage) (*Component, error) {
	var v struct {
		Properties struct {
			Spec *Component `json:"componentSpec"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return nil, berth.Errorf(berth.Invalid, "component %s: %s", name, jsonReason(err))
	}
	if v.Properties.Spec == nil {
		return nil, berth.Errorf(berth.Invalid, "component %s has no componentSpec", name)
	}
	v.Properties.Spec.Inline = strings.EqualFold(name, "azureml_anonymous")
	if otherKind(strings.ToLower(v.Properties.Spec.Type)) {
		var own struct {
			Properties struct {
				Spec map[string]any `json:"componentSpec"`
			} `json:"properties"`
		}
		if err := json.Unmarshal(body, &own); err != nil {
			return nil, berth.Errorf(berth.Invalid, "component %s: %s", name, jsonReason(err))
		}
		v.Properties.Spec.Own = own.Properties.Spec
	}
	return v.Properties.Spec, nil
}

// ComponentInput is a declared input.
type ComponentInput struct {
	ComponentIO
	Optional berth.Scalar   `json:"optional"`
	Default  *berth.Scalar  `json:"default"`
	Enum     []berth.Scalar `json:"enum"`
	Min      *berth.Scalar  `json:"min"`
	Max      *berth.Scalar  `json:"max"`
}

// ComponentIO is what inputs and outputs have in common.
type ComponentIO struct {
	Type string `json:"type"`
	Mode string `json:"mode"`
}

func (i *ComponentInput) optional() bool { return strings.EqualFold(string(i.Optional), "true") }

// check says whether a value can be what is declared. Whole numbers are not insisted upon: Azure
// does not either.
func (i *ComponentInput) check(value string) error {
	switch strings.ToLower(i.Type) {
	case "number", "integer":
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("must be of type %s, not %q", i.Type, value)
		}
		if math.IsNaN(n) && (i.Min != nil || i.Max != nil) {
			return fmt.Errorf("must be within its limits, and %s is not", value)
		}
		if low, ok := limit(i.Min); ok && n < low {
			return fmt.Errorf("must be at least %s, not %s", *i.Min, value)
		}
		if high, ok := limit(i.Max); ok && n > high {
			return fmt.Errorf("must be at most %s, not %s", *i.Max, value)
		}
	case "boolean":
		if !strings.EqualFold(value, "true") && !strings.EqualFold(value, "false") {
			return fmt.Errorf("must be a boolean, not %q", value)
		}
	}
	if len(i.Enum) > 0 && !slices.ContainsFunc(i.Enum, func(of berth.Scalar) bool { return strings.EqualFold(string(of), value) }) {
		return fmt.Errorf("must be one of %q, not %q", i.Enum, value)
	}
	return nil
}

func limit(of *berth.Scalar) (float64, bool) {
	if of == nil {
		return 0, false
	}
	n, err := strconv.ParseFloat(string(*of), 64)
	return n, err == nil
}

var literals = []string{"string", "number", "integer", "boolean", "enum"}

// literal says that a declared type is a value's.
func literal(typ string) bool { return slices.Contains(literals, strings.ToLower(typ)) }

// InputTypes is what the components of the steps declare the values to be that the pipeline takes.
func (g *Graph) InputTypes(component func(id string) (*Component, error)) (map[string]string, error) {
	types := map[string]string{}
	for _, node := range g.Nodes() {
		c, err := g.Jobs[node].component(component)
		if err != nil {
			return nil, berth.Errorf(berth.CodeOf(err), "step %s: %w", node, err)
		}
		for name, in := range g.Jobs[node].Inputs {
			if in == nil || in.Value == nil || c.Inputs[name] == nil || !literal(c.Inputs[name].Type) {
				continue
			}
			if of := wholeInput(string(*in.Value)); of != "" && types[of] == "" {
				types[of] = c.Inputs[name].Type
			}
		}
	}
	return types, nil
}

// steps is those of a pipeline component that is given some inputs: what is bound to one that was
// left out is left out too.
func (c *Component) steps(inputs map[string]any) map[string]any {
	jobs := map[string]any{}
	for name, job := range c.Jobs {
		job = maps.Clone(job)
		if in, ok := job["inputs"].(map[string]any); ok {
			in = maps.Clone(in)
			maps.DeleteFunc(in, func(_ string, v any) bool {
				name := wholeInput(v)
				return name != "" && inputs[name] == nil && c.Inputs[name] != nil
			})
			job["inputs"] = in
		}
		jobs[name] = job
	}
	return jobs
}

// Adopt completes a pipeline job that names a component: what it does not say of inputs and
// outputs, and its steps where it has none, are the component's.
func (c *Component) Adopt(props, inputs, outputs map[string]any) error {
	if !strings.EqualFold(c.Type, "pipeline") {
		return berth.Errorf(berth.Invalid, "properties.componentId: the component is of type %s; a pipeline job requires a pipeline component", c.Type)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Inputs)) {
		decl := c.Inputs[name]
		switch {
		case inputs[name] != nil || decl == nil:
		case decl.Default != nil:
			inputs[name] = map[string]any{"jobInputType": "literal", "value": string(*decl.Default)}
		case !decl.optional():
			return berth.Errorf(berth.Invalid, "properties.inputs.%s is required by the component and was not given", name)
		}
	}
	for name, decl := range c.Outputs {
		if outputs[name] == nil {
			if decl == nil {
				decl = &ComponentIO{}
			}
			outputs[name] = map[string]any{"jobOutputType": orElse(decl.Type, "uri_folder"), "mode": orElse(wireMode(decl.Mode), "ReadWriteMount")}
		}
	}
	props["inputs"], props["outputs"] = inputs, outputs
	if jobs, ok := props["jobs"].(map[string]any); !ok || len(jobs) == 0 {
		props["jobs"] = c.steps(inputs)
	}
	return nil
}
