package kind

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/berthml/berth"
)

// Graph is the typed view of a pipeline job's properties. Inside jobs the wire's casing is mixed.
type Graph struct {
	Inputs         map[string]*berth.JobInput  `json:"inputs"`
	Outputs        map[string]*berth.JobOutput `json:"outputs"`
	Jobs           map[string]*Node            `json:"jobs"`
	ComputeID      string                      `json:"computeId"`
	ExperimentName string                      `json:"experimentName"`
	Properties     map[string]any              `json:"properties"`
	Settings       struct {
		DefaultCompute   string `json:"default_compute"`
		DefaultDatastore string `json:"default_datastore"`
		Continue         bool   `json:"continue_on_step_failure"`
		OnInit           string `json:"on_init"`
		OnFinalize       string `json:"on_finalize"`
	} `json:"settings"`
}

// Node is one step as the client sent it.
type Node struct {
	Type        string                 `json:"type"`
	ComponentID string                 `json:"componentId"`
	ComputeID   string                 `json:"computeId"`
	DisplayName string                 `json:"display_name"`
	Inputs      map[string]*NodeInput  `json:"inputs"`
	Outputs     map[string]*NodeOutput `json:"outputs"`
	Settings    map[string]any         `json:"settings"`

	Resources    map[string]any `json:"resources"`
	Distribution map[string]any `json:"distribution"`
	Limits       map[string]any `json:"limits"`
	Queue        map[string]any `json:"queue_settings"`
	Identity     map[string]any `json:"identity"`
	Env          map[string]any `json:"environment_variables"`
	Properties   map[string]any `json:"properties"`
	Tags         map[string]any `json:"tags"`
	Description  string         `json:"description"`
	// Services are those of a command, by name.
	Services map[string]map[string]any `json:"services"`

	// Own is the step as it was sent, unless it says that it is a command or a pipeline.
	Own map[string]any `json:"-"`
}

// NodeInput is an input of a step: data, a value, or an expression that says where it comes from.
type NodeInput struct {
	Type  string        `json:"job_input_type"`
	Value *berth.Scalar `json:"value"`
	URI   string        `json:"uri"`
	Mode  string        `json:"mode"`
}

// UnmarshalJSON takes a bare value too.
func (in *NodeInput) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] != '{' {
		in.Type = "literal"
		return json.Unmarshal(b, &in.Value)
	}
	type plain NodeInput
	return json.Unmarshal(b, (*plain)(in))
}

// NodeOutput is an output of a step that the client said something about.
type NodeOutput struct {
	Type    string `json:"job_output_type"`
	Value   string `json:"value"` // an expression
	URI     string `json:"uri"`
	Mode    string `json:"mode"`
	Name    string `json:"name"`
	Version string `json:"version"`
}

// UnmarshalJSON takes a bare expression too.
func (out *NodeOutput) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] != '{' {
		return json.Unmarshal(b, &out.Value)
	}
	type plain NodeOutput
	return json.Unmarshal(b, (*plain)(out))
}

// ReadGraph reads a pipeline job's properties.
func ReadGraph(props json.RawMessage) (*Graph, error) {
	var g Graph
	if err := json.Unmarshal(props, &g); err != nil {
		return nil, berth.Errorf(berth.Invalid, "properties: %s", jsonReason(err))
	}
	for name, n := range g.Jobs {
		if n == nil {
			return nil, berth.Errorf(berth.Invalid, "step %s is empty", name)
		}
	}
	return &g, g.readOwn(props)
}

// isStepName says whether a step may be called name.
func isStepName(name string) bool {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return name != "" && len(name) <= 255
}

// cannot are the node types that this server does not run.
var cannot = []string{"sweep", "parallel", "spark", "automl", "import", "data_transfer", "if_else", "do_while", "parallel_for"}

// validate refuses what no component could mend.
func (g *Graph) validate() error {
	if len(g.Jobs) == 0 {
		return berth.Errorf(berth.Invalid, "properties.jobs is empty; a pipeline requires at least one step")
	}
	written := map[string]string{} // the pipeline's outputs, and who writes them
	for _, name := range g.Nodes() {
		if err := g.validateNode(name, g.Jobs[name], written); err != nil {
			return err
		}
	}
	for _, s := range []struct{ key, node string }{{"on_init", g.Settings.OnInit}, {"on_finalize", g.Settings.OnFinalize}} {
		if s.node != "" {
			return berth.Errorf(berth.Unsupported, "settings.%s is not supported on this server yet; remove it", s.key)
		}
	}
	return g.acyclic()
}

func (g *Graph) validateNode(name string, n *Node, written map[string]string) error {
	if !isStepName(name) {
		return berth.Errorf(berth.Invalid, "step name %q is not allowed: use letters, digits, '-' and '_'", name)
	}
	typ := strings.ToLower(n.Type)
	switch _, known := kinds[typ]; {
	case otherKind(typ): // which needs no component
	case slices.Contains(cannot, typ):
		return berth.Errorf(berth.Unsupported, "step %s is of type %s, which is not supported on this server yet; use %s", name, n.Type, joined(Words(), " or "))
	case typ != "" && !known:
		return berth.Errorf(berth.Invalid, "step %s has the unknown type %q; use %s", name, n.Type, joined(Words(), " or "))
	case n.ComponentID == "":
		return berth.Errorf(berth.Invalid, "step %s has no component", name)
	}
	for _, in := range slices.Sorted(maps.Keys(n.Inputs)) {
		if err := g.validateInput(name, in, n.Inputs[in]); err != nil {
			return err
		}
	}
	for _, out := range slices.Sorted(maps.Keys(n.Outputs)) {
		o := n.Outputs[out]
		if o == nil || o.Value == "" {
			continue
		}
		to, ok := boundOutput(o.Value)
		if !ok {
			return berth.Errorf(berth.Invalid, "step %s: output %s is %q; an output is bound with ${{parent.outputs.NAME}}", name, out, o.Value)
		}
		if _, ok := g.Outputs[to]; !ok {
			return berth.Errorf(berth.Invalid, "step %s: output %s is bound to %s, but the pipeline has no output %s", name, out, o.Value, to)
		}
		if other, twice := written[to]; twice {
			return berth.Errorf(berth.Invalid, "step %s: output %s is bound to the pipeline's output %s, which %s already writes", name, out, to, other)
		}
		written[to] = "output " + out + " of step " + name
	}
	return nil
}

func (g *Graph) validateInput(node, name string, in *NodeInput) error {
	if in == nil || in.Value == nil {
		return nil
	}
	return berth.Bindings(string(*in.Value), func(where, path string) error {
		text := "${{" + where + "." + path + "}}"
		r, ok := parentRef(where, path)
		switch {
		case !ok:
			return berth.Errorf(berth.Invalid, "step %s: input %s is bound to %s; use ${{parent.inputs.NAME}} or ${{parent.jobs.STEP.outputs.NAME}}", node, name, text)
		case r.node != "" && g.Jobs[r.node] == nil:
			return berth.Errorf(berth.Invalid, "step %s: input %s is bound to %s, but there is no step %s", node, name, text, r.node)
		case r.node == "" && r.name != "":
			if _, ok := g.Inputs[r.name]; !ok {
				return berth.Errorf(berth.Invalid, "step %s: input %s is bound to %s, but the pipeline has no input %s", node, name, text, r.name)
			}
		}
		return nil
	})
}

// acyclic refuses steps that wait for each other.
func (g *Graph) acyclic() error {
	const under, done = 1, 2
	state := map[string]int{}
	var visit func(name string, path []string) error
	visit = func(name string, path []string) error {
		path = append(path, name)
		switch state[name] {
		case done:
			return nil
		case under:
			return berth.Errorf(berth.Invalid, "step %s waits for itself: %s", name, strings.Join(path[slices.Index(path, name):], " needs "))
		}
		state[name] = under
		for _, n := range g.Jobs[name].needs() {
			if err := visit(n, path); err != nil {
				return err
			}
		}
		state[name] = done
		return nil
	}
	for _, name := range g.Nodes() {
		if err := visit(name, nil); err != nil {
			return err
		}
	}
	return nil
}

// ref is what an expression of a step names: an output of another step, an input of the pipeline,
// or, when both are empty, its name.
type ref struct{ node, name string }

func parentRef(where, path string) (ref, bool) {
	if where != "parent" {
		return ref{}, false
	}
	if path == "name" {
		return ref{}, true
	}
	what, rest, _ := strings.Cut(path, ".")
	switch what {
	case "inputs":
		return ref{name: rest}, rest != ""
	case "jobs":
		node, rest, _ := strings.Cut(rest, ".")
		out, ok := strings.CutPrefix(rest, "outputs.")
		return ref{node, out}, ok && node != "" && out != ""
	}
	return ref{}, false
}

// boundOutput is the pipeline's output that an expression names.
func boundOutput(text string) (string, bool) {
	name := ""
	rest, err := berth.Expand(text, func(where, path string) (string, error) {
		if out, ok := strings.CutPrefix(path, "outputs."); ok && where == "parent" {
			name = out
		}
		return "", nil
	})
	return name, err == nil && name != "" && strings.TrimSpace(rest) == ""
}

// written are the pipeline's outputs that one of its steps is bound to.
func (g *Graph) written() map[string]bool {
	out := map[string]bool{}
	for _, n := range g.Jobs {
		for _, o := range n.Outputs {
			if o != nil {
				if to, ok := boundOutput(o.Value); ok {
					out[to] = true
				}
			}
		}
	}
	return out
}

// needs are the steps that this one takes inputs from, in order.
func (n *Node) needs() []string {
	need := map[string]bool{}
	for _, in := range n.Inputs {
		if in == nil || in.Value == nil {
			continue
		}
		_ = berth.Bindings(string(*in.Value), func(where, path string) error { // what is wrong was refused
			if r, ok := parentRef(where, path); ok && r.node != "" {
				need[r.node] = true
			}
			return nil
		})
	}
	return slices.Sorted(maps.Keys(need))
}
