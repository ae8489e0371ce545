package kind

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// A Maker makes the documents of a pipeline's steps.
type Maker struct {
	Graph *Graph
	Name  string // of the pipeline job
	// Workspace is where its references are to be found.
	Workspace berth.Workspace
	// Output is an output of a step that has been made: its type and where it is.
	Output func(node, name string) (berth.JobOutput, bool)
}

// Make is the properties of the job that runs a step: a Command job, a Pipeline job for a pipeline
// component, or a job of another kind. Errors name the step.
func (m Maker) Make(node string, c *Component) (map[string]any, error) {
	n := m.Graph.Jobs[node]
	wrap := func(err error) error { return berth.Errorf(berth.CodeOf(err), "step %s: %w", node, err) }
	typ := strings.ToLower(c.Type)
	if n.Type != "" && typ != strings.ToLower(n.Type) {
		return nil, berth.Errorf(berth.Invalid, "step %s is of type %s, but its component is of type %s", node, n.Type, c.Type)
	}
	if _, ok := kinds[typ]; !ok {
		return nil, berth.Errorf(berth.Unsupported, "step %s is a component of type %s, which is not supported on this server yet; use %s", node, c.Type, joined(Words(), " or "))
	}
	inputs, err := m.inputs(n, c)
	if err != nil {
		return nil, wrap(err)
	}
	outputs, err := m.outputs(n, c)
	if err != nil {
		return nil, wrap(err)
	}
	compute, err := m.text(n.ComputeID)
	if err != nil {
		return nil, wrap(err)
	}
	compute = orElse(compute, orElse(m.Graph.ComputeID, m.Graph.Settings.DefaultCompute))
	p := map[string]any{
		"displayName": orElse(n.DisplayName, node), "experimentName": m.Graph.ExperimentName, "isArchived": false,
		"inputs": inputs, "outputs": outputs, "tags": orEmpty(n.Tags), "properties": m.properties(n),
	}
	if n.Description != "" {
		p["description"] = n.Description
	}
	if n.ComponentID != "" {
		p["componentId"] = n.ComponentID
	}
	switch typ {
	case "command":
		err = m.command(p, n, c, compute)
	case "pipeline":
		err = m.nested(p, n, c, compute)
	default:
		err = m.other(p, n, c, compute)
	}
	if err != nil {
		return nil, wrap(err)
	}
	return p, nil
}

// properties are the step's own, with what the pipeline says to us.
func (m Maker) properties(n *Node) map[string]any {
	p := map[string]any{}
	for k, v := range m.Graph.Properties {
		if strings.HasPrefix(k, "berth.") {
			p[k] = v
		}
	}
	maps.Copy(p, n.Properties)
	return p
}

// command adds what a command job has.
func (m Maker) command(p map[string]any, n *Node, c *Component, compute string) error {
	p["jobType"] = "Command"
	inputs := p["inputs"].(map[string]any)
	p["command"] = optionalBlocks(c.Command, func(name string) bool { return inputs[name] != nil })
	if compute != "" {
		p["computeId"] = m.id(compute, "computes")
	}
	if c.Code != "" {
		p["codeId"] = m.id(c.Code, "codes")
	}
	var environment string
	if len(c.Environment) > 0 && json.Unmarshal(c.Environment, &environment) != nil {
		return berth.Errorf(berth.Unsupported, "its component defines an inline environment; register the environment and refer to it")
	}
	if environment != "" {
		p["environmentId"] = m.id(environment, "environments")
	}
	env := maps.Clone(c.Env)
	if env == nil {
		env = map[string]any{}
	}
	maps.Copy(env, n.Env)
	for k, over := range map[string][2]map[string]any{
		"environmentVariables": {env}, "resources": {c.Resources, n.Resources}, "distribution": {c.Distribution, n.Distribution},
		"limits": {n.Limits}, "queueSettings": {n.Queue}, "identity": {n.Identity},
	} {
		both := map[string]any{}
		for _, one := range over {
			if k == "distribution" && len(one) > 0 {
				clear(both) // a distribution is one thing
			}
			for key, v := range one {
				v, err := m.value(v)
				if err != nil {
					return berth.Errorf(berth.Invalid, "%s: %w", key, err)
				}
				if k != "environmentVariables" {
					key, v = camel(key), number(key, v)
				}
				if k == "limits" && key == "timeout" {
					v = seconds(v)
				}
				both[key] = v
			}
		}
		if k == "distribution" && both["type"] != nil {
			both["distributionType"] = both["type"]
			delete(both, "type")
		}
		if len(both) > 0 {
			p[k] = both
		}
	}
	if len(n.Services) > 0 {
		p["services"] = stepServices(n.Services)
	}
	return nil
}

// stepServices are the services of a step as jobs have them.
func stepServices(all map[string]map[string]any) map[string]any {
	out := map[string]any{}
	for name, s := range all {
		one := map[string]any{}
		for key, v := range s {
			one[camel(key)] = v
		}
		out[name] = one
	}
	return out
}

// id is a reference as jobs have it: components have it as YAML does.
func (m Maker) id(text, collection string) string {
	r, err := berth.ParseRef(text, collection)
	if err != nil || r.Label != "" || r.Version == "" && collection != "computes" {
		return text
	}
	return r.ID(m.Workspace)
}

// nested adds what a pipeline job has. Inside it parent means itself; an input that was left out is
// left out of its steps too.
func (m Maker) nested(p map[string]any, n *Node, c *Component, compute string) error {
	p["jobType"] = "Pipeline"
	p["jobs"] = c.steps(p["inputs"].(map[string]any))
	s := m.Graph.Settings
	settings := map[string]any{"continue_on_step_failure": s.Continue}
	maps.Copy(settings, c.Settings)
	maps.Copy(settings, n.Settings)
	if compute != "" {
		settings["default_compute"] = compute
	}
	if s.DefaultDatastore != "" {
		settings["default_datastore"] = s.DefaultDatastore
	}
	p["settings"] = settings
	return nil
}

// wholeInput is NAME when an input of a step is ${{parent.inputs.NAME}} and nothing else.
func wholeInput(v any) string {
	if m, ok := v.(map[string]any); ok {
		v = m["value"]
	}
	text, ok := v.(string)
	if !ok {
		return ""
	}
	name := ""
	rest, err := berth.Expand(text, func(where, path string) (string, error) {
		if r, ok := parentRef(where, path); ok && r.node == "" {
			name = r.name
		}
		return "", nil
	})
	if err != nil || strings.TrimSpace(rest) != "" {
		return ""
	}
	return name
}

// inputs binds what the component declares.
func (m Maker) inputs(n *Node, c *Component) (map[string]any, error) {
	for name := range n.Inputs {
		if c.Inputs[name] == nil {
			return nil, berth.Errorf(berth.Invalid, "its component has no input %s", name)
		}
	}
	out := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(c.Inputs)) {
		decl := c.Inputs[name]
		if decl == nil {
			decl = &ComponentInput{}
		}
		in, err := m.input(n.Inputs[name], decl, c.Inline)
		if err != nil {
			return nil, berth.Errorf(berth.Invalid, "input %s %w", name, err)
		}
		switch {
		case in != nil:
			out[name] = in
		case decl.Default != nil:
			out[name] = map[string]any{"jobInputType": "literal", "value": string(*decl.Default)}
		case !decl.optional():
			return nil, berth.Errorf(berth.Invalid, "input %s is required and was not given", name)
		}
	}
	return out, nil
}

// input is one input as a job has it, nil when nothing was given.
func (m Maker) input(in *NodeInput, decl *ComponentInput, inline bool) (map[string]any, error) {
	if in == nil || in.Value == nil && in.URI == "" {
		return nil, nil
	}
	mode := orElse(in.Mode, wireMode(decl.Mode))
	if in.URI != "" {
		return data(orElse(in.Type, decl.Type), in.URI, mode), nil
	}
	text := string(*in.Value)
	b, err := m.bind(text)
	if err != nil || b == nil {
		return nil, err
	}
	switch {
	case b.uri == "" && !inline && decl.Type != "" && !literal(decl.Type) && strings.Contains(text, "${{"):
		return nil, fmt.Errorf("must be data of type %s, but %s is a value", decl.Type, text)
	case b.uri != "" && !inline && literal(decl.Type):
		return nil, fmt.Errorf("must be a value of type %s, but %s is data", decl.Type, text)
	case b.uri == "":
		return map[string]any{"jobInputType": "literal", "value": b.value}, decl.check(b.value)
	case b.part || b.typ == "":
		b.typ = orElse(decl.Type, "uri_folder")
	}
	return data(b.typ, b.uri, orElse(mode, b.mode)), nil
}

func data(typ, uri, mode string) map[string]any {
	return map[string]any{"jobInputType": orElse(typ, "uri_folder"), "uri": uri, "mode": orElse(mode, "ReadOnlyMount")}
}

// outputs is where the step's outputs go: to the pipeline's that they are bound to, to where the
// client says, or to a place of the job's.
func (m Maker) outputs(n *Node, c *Component) (map[string]any, error) {
	for name := range n.Outputs {
		if _, ok := c.Outputs[name]; !ok {
			return nil, berth.Errorf(berth.Invalid, "its component has no output %s", name)
		}
	}
	out := map[string]any{}
	for name, decl := range c.Outputs {
		if decl == nil {
			decl = &ComponentIO{}
		}
		if literal(decl.Type) {
			return nil, berth.Errorf(berth.Unsupported, "output %s is of type %s; outputs that are values are not supported on this server yet", name, decl.Type)
		}
		o := map[string]any{"jobOutputType": orElse(decl.Type, "uri_folder"), "mode": orElse(wireMode(decl.Mode), "ReadWriteMount")}
		set := func(key, v string) {
			if v != "" {
				o[key] = v
			}
		}
		if ds := m.Graph.datastore(); ds != "" {
			o["uri"] = "azureml://datastores/" + ds + "/paths/azureml/${{name}}/${{output_name}}/"
		}
		if said := n.Outputs[name]; said != nil {
			if to, ok := boundOutput(said.Value); ok {
				whole := *m.output(to)
				set("jobOutputType", whole.Type)
				set("mode", whole.Mode)
				o["uri"] = whole.Place(m.Name, to)
			}
			set("jobOutputType", said.Type)
			set("mode", said.Mode)
			set("uri", said.URI)
			set("assetName", said.Name)
			set("assetVersion", said.Version)
		}
		out[name] = o
	}
	return out, nil
}

// output is one of the pipeline's own outputs, where the default datastore says when nothing else
// does.
func (m Maker) output(name string) *berth.JobOutput {
	var o berth.JobOutput
	if given := m.Graph.Outputs[name]; given != nil {
		o = *given
	}
	if ds := m.Graph.datastore(); ds != "" && o.URI == "" {
		o.URI = "azureml://datastores/" + ds + "/paths/azureml/${{name}}/${{output_name}}/"
	}
	return &o
}

// datastore is the default datastore, where it is not the workspace's.
func (g *Graph) datastore() string { return datastoreOf(g.Settings.DefaultDatastore) }

// datastoreOf is the datastore of an id, empty where it is the workspace's own default.
func datastoreOf(id string) string {
	if id == "" {
		return ""
	}
	r, err := berth.ParseRef(id, "datastores")
	if err != nil || strings.EqualFold(r.Name, "workspaceblobstore") {
		return ""
	}
	return r.Name
}

// counts are the settings that are numbers, though components have them as text.
var counts = []string{"instance_count", "max_instance_count", "process_count_per_instance", "worker_count", "parameter_server_count", "priority"}

func number(key string, v any) any {
	if s, ok := v.(string); ok && slices.Contains(counts, key) {
		if n, err := strconv.Atoi(strings.TrimSpace(s)); err == nil {
			return n
		}
	}
	return v
}

// seconds is a duration as jobs have it; a bare number is one of seconds.
func seconds(v any) any {
	if n, err := strconv.ParseFloat(fmt.Sprint(v), 64); err == nil {
		return "PT" + strconv.FormatFloat(n, 'f', -1, 64) + "S"
	}
	return v
}

// camel turns instance_count into instanceCount.
func camel(key string) string {
	words := strings.Split(key, "_")
	for i, w := range words {
		if i > 0 && w != "" {
			words[i] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// wireMode is a mode as jobs have it; components have it as YAML does.
func wireMode(mode string) string {
	if w, ok := map[string]string{
		"ro_mount": "ReadOnlyMount", "rw_mount": "ReadWriteMount", "mount": "ReadWriteMount", "download": "Download", "upload": "Upload",
		"direct": "Direct", "eval_mount": "EvalMount", "eval_download": "EvalDownload",
	}[strings.ToLower(mode)]; ok {
		return w
	}
	return mode
}

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}
