package kind_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/kind"
)

var space = berth.Workspace{Subscription: "s", Group: "g", Name: "w"}

type object = map[string]any

func marshal(t interface{ Fatal(...any) }, v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// factory lets a pipeline live: its steps are jobs that do what the test says.
type factory struct {
	t     *rapid.T
	k     kind.Kind
	j     kind.Job
	needs map[string][]string
	began []string
	clock time.Time
	log   string
	on    bool // it goes on when a step has failed
}

// TestPipelineLaws: whatever its steps do, in whatever order, a pipeline begins each at most once
// and after all it needs, takes no step twice, tells everything in a log that only grows, and ends
// in the one status that its steps make true.
func TestPipelineLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "steps")
		f := &factory{t: t, needs: map[string][]string{}, clock: time.Unix(1000, 0), on: rapid.Bool().Draw(t, "continue")}
		jobs := object{}
		for i := range n {
			inputs := object{}
			for before := range i {
				if rapid.IntRange(0, 2).Draw(t, "edge") == 0 {
					f.needs[node(i)] = append(f.needs[node(i)], node(before))
					inputs["from"+node(before)] = object{"job_input_type": "literal", "value": "${{parent.jobs." + node(before) + ".outputs.o}}"}
				}
			}
			jobs[node(i)] = object{"type": "command", "componentId": "c", "inputs": inputs}
		}
		var err error
		if f.k, err = kind.Of("Pipeline"); err != nil {
			t.Fatal(err)
		}
		props := marshal(t, object{"jobs": jobs, "settings": object{"continue_on_step_failure": f.on}})
		if err := f.k.Validate(props); err != nil {
			t.Fatal(err)
		}
		f.j = kind.Job{Name: "p", Key: "p", Status: berth.NotStarted, Props: props, Children: map[string]kind.Child{}}
		f.step()
		for i := 0; !f.j.Status.Terminal(); i++ {
			if i > 500 {
				t.Fatalf("it does not end: %+v", f.j)
			}
			f.happen()
			f.step()
		}
		f.over()
	})
}

func node(i int) string { return string(rune('a' + i)) }

func (f *factory) state(node string) *berth.PipelineStep {
	i := slices.IndexFunc(f.j.State.Steps, func(p berth.PipelineStep) bool { return p.Node == node })
	return &f.j.State.Steps[i]
}

// step takes steps until nothing is to be done at once, as the control loop does.
func (f *factory) step() {
	for {
		s := f.k.Step(f.j, nil)
		if d := cmp.Diff(s, f.k.Step(f.j, nil)); d != "" {
			f.t.Fatalf("not deterministic: %s", d)
		}
		if f.j.Status != berth.Finalizing && s.Status.Terminal() {
			f.t.Fatalf("it is %s and its end was not told", s.Status)
		}
		if len(s.Begin)+len(s.Cancel) == 0 {
			f.j.Status, f.j.State = s.Status, s.State
			break
		}
		f.j.State = s.State
		for _, name := range s.Begin {
			f.begin(name)
		}
		for _, name := range s.Cancel {
			c := f.j.Children[name]
			if c.Cancel || c.Status.Terminal() || c.Status == "" {
				f.t.Fatalf("%s is canceled: %+v", name, c)
			}
			c.Cancel = true
			f.j.Children[name] = c
		}
	}
	if text := kind.ParentLog("pipeline", f.j.Status, f.j.State); !f.j.Status.Terminal() {
		if !strings.HasPrefix(text, f.log) {
			f.t.Fatalf("the log was\n%sand is\n%s", f.log, text)
		}
		f.log = text
	}
}

func (f *factory) begin(name string) {
	if slices.Contains(f.began, name) || f.j.State.Cancel {
		f.t.Fatalf("%s begins after %v, canceled: %v", name, f.began, f.j.State.Cancel)
	}
	for _, n := range f.needs[name] {
		if f.state(n).Status != berth.Completed {
			f.t.Fatalf("%s begins before %s has completed", name, n)
		}
	}
	f.began = append(f.began, name)
	p := f.state(name)
	if rapid.IntRange(0, 15).Draw(f.t, "cannot") == 0 {
		p.Status, p.Reason, p.Ended = berth.Failed, "its compute is gone", f.clock
		return
	}
	p.Job, p.Status, p.Began = "p_"+name, berth.NotStarted, f.clock
	f.j.Children[name] = kind.Child{Status: berth.NotStarted}
}

func (f *factory) happen() {
	f.clock = f.clock.Add(time.Second)
	var open []string
	for name, c := range f.j.Children {
		if !c.Status.Terminal() {
			open = append(open, name)
		}
	}
	slices.Sort(open)
	if rapid.IntRange(0, 20).Draw(f.t, "cancel") == 0 && f.j.Status != berth.Finalizing {
		f.j.State.Cancel, f.j.Status = true, berth.CancelRequested
		return
	}
	if len(open) == 0 {
		return
	}
	name := rapid.SampledFrom(open).Draw(f.t, "step")
	c := f.j.Children[name]
	switch rapid.SampledFrom([]string{"run", "end", "end", "fail", "cancel", "deleted"}).Draw(f.t, "event") {
	case "run":
		c.Status = berth.Running
	case "end":
		c.Status, c.Reason, c.Ended = berth.Completed, "well", f.clock
		if c.Cancel {
			c.Status, c.Reason = berth.Canceled, "canceled"
		}
	case "fail":
		c.Status, c.Reason, c.Ended = berth.Failed, "exit code 1", f.clock
	case "cancel":
		c.Status, c.Reason, c.Ended = berth.Canceled, "canceled by somebody", f.clock
	case "deleted":
		delete(f.j.Children, name)
		return
	}
	f.j.Children[name] = c
}

func (f *factory) over() {
	count := map[berth.JobStatus]int{}
	for _, p := range f.j.State.Steps {
		count[p.Status]++
	}
	total := len(f.j.State.Steps)
	want := berth.Failed
	switch {
	case count[berth.Completed] == total:
		want = berth.Completed
	case f.j.State.Cancel && count[berth.Failed] == 0:
		want = berth.Canceled
	}
	if f.j.Status != want || f.j.State.Reason == "" || total != count[berth.Completed]+count[berth.Failed]+count[berth.Canceled]+count[""] {
		f.t.Fatalf("%s (%s) of %+v", f.j.Status, f.j.State.Reason, f.j.State.Steps)
	}
	if f.on && !f.j.State.Cancel {
		for _, p := range f.j.State.Steps {
			blocked := slices.ContainsFunc(f.needs[p.Node], func(n string) bool { return f.state(n).Status != berth.Completed })
			if blocked != (p.Status == "") {
				f.t.Fatalf("%s is %q, and what it needs is %v", p.Node, p.Status, f.needs[p.Node])
			}
		}
	}
	if !strings.Contains(f.log, "the pipeline ends: ") {
		f.t.Fatalf("the log does not tell the end:\n%s", f.log)
	}
	s := f.k.Step(f.j, nil)
	if s.Status != f.j.Status || len(s.Begin)+len(s.Cancel) > 0 {
		f.t.Fatalf("a pipeline that was %s became %+v", f.j.Status, s)
	}
}

func TestPipelineReasons(t *testing.T) {
	k, err := kind.Of("Pipeline")
	if err != nil {
		t.Fatal(err)
	}
	props := marshal(t, object{"jobs": object{"a": object{"componentId": "c"}, "b": object{"componentId": "c"}, "c": object{
		"componentId": "c", "inputs": object{"x": object{"value": "${{parent.jobs.a.outputs.o}}"}},
	}}})
	for _, c := range []struct {
		name     string
		status   berth.JobStatus
		state    berth.JobState
		children map[string]kind.Child
		want     string
	}{
		{
			"two run", berth.Running,
			berth.JobState{Steps: []berth.PipelineStep{{Node: "a", Job: "p_a"}, {Node: "b", Job: "p_b"}}},
			map[string]kind.Child{"a": {Status: berth.Queued}, "b": {Status: berth.Running}},
			"Running: 0 of 3 steps have ended; it waits for a (Queued), b (Running)",
		},
		{
			"one failed, another is asked to end", berth.Running,
			berth.JobState{Steps: []berth.PipelineStep{{Node: "a", Job: "p_a"}, {Node: "b", Job: "p_b"}}},
			map[string]kind.Child{"a": {Status: berth.Failed, Reason: "exit code 1"}, "b": {Status: berth.Running}},
			"Running: step a ended as Failed; it waits for b (Running) cancel b",
		},
		{
			"failed", berth.Finalizing,
			berth.JobState{Steps: []berth.PipelineStep{{Node: "a", Job: "p_a"}, {Node: "b", Job: "p_b", Status: berth.Canceled, LastLine: 1}}},
			map[string]kind.Child{"a": {Status: berth.Failed, Reason: "exit code 1"}},
			"Failed: step a failed: exit code 1; 1 did not run",
		},
		{"canceled at once", berth.CancelRequested, berth.JobState{Cancel: true}, nil, "Finalizing: canceled before a step began"},
		{
			"the budget is used up", berth.Finalizing,
			berth.JobState{Cancel: true, StopCause: "budget", StopWhy: "the budget is used up"},
			nil,
			"Canceled: the budget is used up",
		},
	} {
		s := k.Step(kind.Job{Name: "p", Status: c.status, State: c.state, Props: props, Children: c.children}, nil)
		got := string(s.Status) + ": " + s.State.Reason
		for _, n := range s.Begin {
			got += " begin " + n
		}
		for _, n := range s.Cancel {
			got += " cancel " + n
		}
		if got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

// shop is components by name.
func shop(specs object) func(string) (*kind.Component, error) {
	return func(id string) (*kind.Component, error) {
		spec, ok := specs[id]
		if !ok {
			return nil, berth.Errorf(berth.Invalid, "there is no component %s", id)
		}
		b, err := json.Marshal(object{"properties": object{"componentSpec": spec}})
		if err != nil {
			return nil, err
		}
		return kind.ReadComponent(strings.TrimSuffix(id, "!"), b)
	}
}

func lit(text string) object { return object{"job_input_type": "literal", "value": text} }

var parts = object{
	"make": object{
		"type": "command", "command": "make ${{inputs.n}} ${{outputs.o}}", "code": "azureml:code:1", "environment": "azureml:env:2",
		"inputs": object{
			"n":    object{"type": "integer", "default": 7, "min": 1, "max": "99.5"},
			"fast": object{"type": "boolean", "optional": true},
			"kind": object{"type": "string", "optional": true, "enum": []any{"Large", 2}},
		},
		"outputs": object{"o": object{"type": "uri_folder"}}, "resources": object{"instance_count": 2},
		"distribution": object{"type": "mpi", "process_count_per_instance": "4"},
	},
	"use": object{
		"type": "command", "command": "use ${{inputs.i}}$[[ --extra ${{inputs.x}}]]", "inputs": object{"i": object{"type": "uri_folder", "mode": "download"}, "x": object{"type": "string", "optional": true}},
		"outputs": object{"r": object{"type": "uri_file"}},
	},
	"one": object{"type": "command", "command": "cat ${{inputs.f}}", "inputs": object{"f": object{"type": "uri_file"}}},
	"both": object{
		"type": "pipeline", "inputs": object{"n": object{"type": "integer"}, "x": object{"type": "string", "optional": true}}, "outputs": object{"out": object{"type": "uri_file"}, "loose": nil},
		"jobs": object{
			"first":  object{"type": "command", "componentId": "make", "inputs": object{"n": lit("${{parent.inputs.n}}")}},
			"second": object{"type": "command", "componentId": "use", "inputs": object{"i": lit("${{parent.jobs.first.outputs.o}}"), "x": lit("${{parent.inputs.x}}")}, "outputs": object{"r": object{"type": "literal", "value": "${{parent.outputs.out}}"}}},
		},
	},
	"sweep": object{"type": "sweep"},
	"flag":  object{"type": "command", "command": "x", "outputs": object{"o": object{"type": "boolean"}}},
	"self":  object{"type": "pipeline", "jobs": object{"again": object{"type": "pipeline", "componentId": "self"}}},
}

// TestUnfold: inputs, outputs and settings of steps come out as the jobs that run them need them.
func TestUnfold(t *testing.T) {
	props := marshal(t, object{
		"experimentName": "exp", "computeId": "whole", "settings": object{"default_compute": "last"}, "properties": object{"berth.environment": "host", "mine": 1},
		"inputs": object{
			"n": object{"jobInputType": "literal", "value": "5"}, "d": object{"jobInputType": "uri_folder", "uri": "azureml:d:1", "mode": "Direct"}, "none": nil,
		},
		"outputs": object{"end": object{"jobOutputType": "uri_file", "uri": "azureml://datastores/x/paths/${{name}}.txt"}},
		"jobs": object{
			"a": object{
				"type": "command", "componentId": "make", "inputs": object{"n": lit("${{parent.inputs.n}}"), "fast": lit("${{parent.inputs.none}}")},
				"resources": object{"instance_count": "${{parent.inputs.n}}"}, "environment_variables": object{"A": "${{parent.inputs.n}}", "B": "${{inputs.n}}"},
				"limits": object{"timeout": "PT1M"}, "computeId": "mine", "queue_settings": object{"job_tier": "Spot"},
			},
			"b":    object{"componentId": "both", "inputs": object{"n": lit("1")}, "outputs": object{"out": object{"type": "literal", "value": "${{parent.outputs.end}}"}}},
			"c":    object{"componentId": "one", "inputs": object{"f": lit("${{parent.jobs.a.outputs.o}}/x/${{parent.inputs.n}}.csv")}},
			"d":    object{"componentId": "use", "inputs": object{"i": lit("${{parent.inputs.d}}"), "x": lit("of ${{parent.name}}")}},
			"last": object{"componentId": "one", "inputs": object{"f": lit("${{parent.jobs.b.outputs.out}}")}, "limits": object{"timeout": 90}},
			"z":    object{"componentId": "one", "inputs": object{"f": lit("${{parent.inputs.d}}")}}, // what is given keeps its type, as in Azure
		},
	})
	steps, err := kind.Unfold(space, "p", props, shop(parts))
	if err != nil {
		t.Fatal(err)
	}
	got, order := map[string]string{}, []string{}
	for _, s := range steps {
		order = append(order, s.Path+" "+strings.Join(s.After, " "))
		p := maps(s.Props)
		got[s.Path] = fmt.Sprint(p["command"], " @", strings.TrimPrefix(p["computeId"], space.ID()+"/computes/"), " in ", p["inputs"], " out ", p["outputs"], " ", p["resources"], p["distribution"], p["limits"], p["environmentVariables"], p["queueSettings"], p["properties"])
	}
	want := map[string]string{
		"a": `make ${{inputs.n}} ${{outputs.o}} @mine in {"n":{"jobInputType":"literal","value":"5"}} out {"o":{"jobOutputType":"uri_folder","mode":"ReadWriteMount"}} ` +
			`{"instanceCount":5}{"distributionType":"mpi","processCountPerInstance":4}{"timeout":"PT1M"}{"A":"5","B":"${{inputs.n}}"}{"jobTier":"Spot"}{"berth.environment":"host"}`,
		"b.first": `make ${{inputs.n}} ${{outputs.o}} @whole in {"n":{"jobInputType":"literal","value":"1"}} out {"o":{"jobOutputType":"uri_folder","mode":"ReadWriteMount"}} ` +
			`{"instanceCount":2}{"distributionType":"mpi","processCountPerInstance":4}{"berth.environment":"host"}`,
		"b.second": `use ${{inputs.i}} @whole in {"i":{"jobInputType":"uri_folder","mode":"Download","uri":"azureml://datastores/workspaceblobstore/paths/azureml/p_b_first/o/"}} ` +
			`out {"r":{"jobOutputType":"uri_file","mode":"ReadWriteMount","uri":"azureml://datastores/x/paths/p.txt"}} {"berth.environment":"host"}`,
		"c": `cat ${{inputs.f}} @whole in {"f":{"jobInputType":"uri_file","mode":"ReadOnlyMount","uri":"azureml://datastores/workspaceblobstore/paths/azureml/p_a/o/x/5.csv"}} out {} {"berth.environment":"host"}`,
		"d": `use ${{inputs.i}} --extra ${{inputs.x}} @whole in {"i":{"jobInputType":"uri_folder","mode":"Download","uri":"azureml:d:1"},"x":{"jobInputType":"literal","value":"of p"}} ` +
			`out {"r":{"jobOutputType":"uri_file","mode":"ReadWriteMount"}} {"berth.environment":"host"}`,
		"last": `cat ${{inputs.f}} @whole in {"f":{"jobInputType":"uri_file","mode":"ReadOnlyMount","uri":"azureml://datastores/x/paths/p.txt"}} out {} {"timeout":"PT90S"}{"berth.environment":"host"}`,
		"z":    `cat ${{inputs.f}} @whole in {"f":{"jobInputType":"uri_folder","mode":"Direct","uri":"azureml:d:1"}} out {} {"berth.environment":"host"}`,
	}
	if d := cmp.Diff([]string{"a ", "b.first ", "b.second b.first", "c a", "d ", "last b.second", "z "}, order); d != "" {
		t.Errorf("after which the steps come (-want +got):\n%s", d)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if first := steps[0].Props; first["codeId"] != space.ID()+"/codes/code/versions/1" || first["environmentId"] != space.ID()+"/environments/env/versions/2" {
		t.Errorf("%v", first)
	}
}

// maps writes the objects of a document as JSON.
func maps(p object) map[string]string {
	out := map[string]string{}
	for k, v := range p {
		if s, ok := v.(string); ok {
			out[k] = s
		} else if b, err := json.Marshal(v); err == nil {
			out[k] = string(b)
		}
	}
	return out
}

func TestPipelineRefusals(t *testing.T) {
	a := object{"type": "command", "componentId": "make"}
	in := func(component, name, text string) object {
		return object{"componentId": component, "inputs": object{name: lit(text)}}
	}
	many := object{}
	for i := range 1001 {
		many[fmt.Sprint("s", i)] = a
	}
	for _, c := range []struct {
		jobs object
		want string
		code berth.Code
	}{
		{many, "1000 steps in all", berth.Limit},
		{object{}, "properties.jobs is empty", berth.Invalid},
		{object{"s": object{"type": "sweep", "trial": object{}}}, "step s is of type sweep, which is not supported", berth.Unsupported},
		{object{"s": object{"type": "if_else"}}, "step s is of type if_else", berth.Unsupported},
		{object{"s": object{"type": "magic"}}, `step s has the unknown type "magic"`, berth.Invalid},
		{object{"s": object{"type": "command"}}, "step s has no component", berth.Invalid},
		{object{"s": object{"componentId": "sweep"}}, "step s is a component of type sweep", berth.Unsupported},
		{object{"s": object{"type": "pipeline", "componentId": "make"}}, "step s is of type pipeline, but its component is of type command", berth.Invalid},
		{object{"s": object{"componentId": "nowhere"}}, "step s: there is no component nowhere", berth.Invalid},
		{object{"s": nil}, "step s is empty", berth.Invalid},
		{object{"s.t": a}, `step name "s.t" is not allowed`, berth.Invalid},
		{object{"a": a, "b": in("use", "i", "${{parent.jobs.z.outputs.o}}")}, "step b: input i is bound to ${{parent.jobs.z.outputs.o}}, but there is no step z", berth.Invalid},
		{object{"a": a, "b": in("use", "i", "${{parent.jobs.a.outputs.z}}")}, "step b: input i is bound to ${{parent.jobs.a.outputs.z}}, and step a has no output z", berth.Invalid},
		{object{"b": in("use", "i", "${{parent.inputs.z}}")}, "the pipeline has no input z", berth.Invalid},
		{object{"b": in("use", "i", "${{inputs.z}}")}, "use ${{parent.inputs.NAME}}", berth.Invalid},
		{object{"b": object{"componentId": "use"}}, "step b: input i is required and was not given", berth.Invalid},
		{object{"b": in("use", "i", "${{parent.inputs.none}}")}, "step b: input i is required", berth.Invalid},
		{object{"b": in("make", "z", "1")}, "step b: its component has no input z", berth.Invalid},
		{object{"b": in("make", "n", "many")}, `step b: input n must be of type integer, not "many"`, berth.Invalid},
		{object{"b": in("make", "n", "0")}, "step b: input n must be at least 1, not 0", berth.Invalid},
		{object{"b": in("make", "n", "nan")}, "step b: input n must be within its limits, and nan is not", berth.Invalid},
		{object{"b": in("make", "n", "1e6")}, "step b: input n must be at most 99.5, not 1e6", berth.Invalid},
		{object{"b": in("make", "kind", "small")}, `step b: input kind must be one of ["Large" "2"], not "small"`, berth.Invalid},
		{object{"b": in("make", "fast", "perhaps")}, `step b: input fast must be a boolean`, berth.Invalid},
		{object{"b": in("make", "n", "${{parent.inputs.d}}")}, "step b: input n must be a value of type integer, but ${{parent.inputs.d}} is data", berth.Invalid},
		{object{"b": in("use", "i", "${{parent.inputs.v}}")}, "step b: input i must be data of type uri_folder, but ${{parent.inputs.v}} is a value", berth.Invalid},
		{object{"b": in("make", "fast", "see ${{parent.inputs.d}}")}, "a data reference must come first", berth.Invalid},
		{object{"a": in("use", "i", "${{parent.jobs.b.outputs.r}}"), "b": in("use", "i", "${{parent.jobs.a.outputs.r}}")}, "waits for itself: a needs b needs a", berth.Invalid},
		{object{"a": object{"componentId": "make", "outputs": object{"o": object{"value": "${{parent.outputs.z}}"}}}}, "the pipeline has no output z", berth.Invalid},
		{object{"a": object{"componentId": "make", "outputs": object{"z": object{}}}}, "step a: its component has no output z", berth.Invalid},
		{object{"a": object{"componentId": "make", "outputs": object{"o": object{"value": "${{parent.outputs.out}}"}}}, "b": object{"componentId": "make", "outputs": object{"o": object{"value": "${{parent.outputs.out}}"}}}}, "step b: output o is bound to the pipeline's output out, which output o of step a already writes", berth.Invalid},
		{object{"a": object{"componentId": "flag"}}, "step a: output o is of type boolean", berth.Unsupported},
		{object{"a": object{"componentId": "both", "inputs": object{"n": lit("1")}}, "b": in("use", "i", "${{parent.jobs.a.outputs.loose}}")}, "step a has no output loose", berth.Invalid},
		{object{"a": object{"componentId": "both", "inputs": object{"n": lit("many")}}}, `step a: input n must be of type integer, not "many"`, berth.Invalid},
		{object{"a": object{"componentId": "self"}}, "16 deep", berth.Limit},
	} {
		props := marshal(t, object{
			"inputs":  object{"d": object{"jobInputType": "uri_folder", "uri": "azureml:d:1"}, "v": object{"jobInputType": "literal", "value": "1"}, "none": nil},
			"outputs": object{"out": nil}, "jobs": c.jobs,
		})
		_, err := kind.Unfold(space, "p", props, shop(parts))
		if err == nil || !strings.Contains(err.Error(), c.want) || berth.CodeOf(err) != c.code {
			t.Errorf("%v: %v (%s), want %q", c.jobs, err, berth.CodeOf(err), c.want)
		}
	}
}

func FuzzPipeline(f *testing.F) {
	f.Add(`{"jobs":{"a":{"componentId":"make","inputs":{"n":1}},"b":{"componentId":"both","outputs":{"out":"${{parent.outputs.o}}"},"inputs":{"n":"${{ parent.jobs.a.outputs.o }}/x"}}},"outputs":{"o":null}}`)
	f.Add(`{"jobs":{"a":{"inputs":{"i":"${{parent.jobs.a.outputs.o}}"}}}}`)
	f.Add(`{"jobs":{"a":{"componentId":"use","inputs":{"i":{"uri":"azureml:d:1"},"x":{"value":true}},"resources":{"instance_count":"${{parent.inputs.q}}"}}},"settings":{"continue_on_step_failure":true}}`)
	f.Fuzz(func(t *testing.T, doc string) {
		if !json.Valid([]byte(doc)) {
			return
		}
		k, err := kind.Of("Pipeline")
		if err != nil {
			t.Fatal(err)
		}
		_, err = kind.Unfold(space, "p", json.RawMessage(doc), shop(parts))
		if err != nil && berth.CodeOf(err) == berth.Internal {
			t.Errorf("an error without a code: %v", err)
		}
		if s := k.Step(kind.Job{Name: "p", Status: berth.NotStarted, Props: json.RawMessage(doc)}, nil); err == nil && len(s.Begin) == 0 {
			t.Errorf("nothing begins: %+v", s)
		}
	})
}
