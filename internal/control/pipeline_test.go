package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/control"
	"github.com/berthml/berth/internal/store"
)

type object = map[string]any

// component registers a component and is its id.
func (p *fixture) component(name string, spec object) string {
	p.t.Helper()
	id := p.ws + "/components/" + name + "/versions/1"
	if code, b := p.do("PUT", id, object{"properties": object{"componentSpec": spec}}); code != http.StatusCreated && code != http.StatusOK {
		p.t.Fatalf("component %s: %d %s", name, code, b)
	}
	return id
}

// offer submits a job and is what the server said if it refused.
func (p *fixture) offer(name string, props object) string {
	code, b := p.do("PUT", p.ws+"/jobs/"+name, object{"properties": props})
	if code == http.StatusCreated {
		return ""
	}
	var v struct{ Error struct{ Message string } }
	if err := json.Unmarshal(b, &v); err != nil || v.Error.Message == "" {
		p.t.Fatalf("%d %s", code, b)
	}
	return v.Error.Message
}

func value(text string) object { return object{"job_input_type": "literal", "value": text} }

// chain is a pipeline of two steps, the second of which takes what the first makes.
func (p *fixture) chain() object {
	make := p.component("make", object{
		"type": "command", "command": "forever ${{outputs.o}} ${{inputs.n}}", "inputs": object{"n": object{"type": "integer"}},
		"outputs": object{"o": object{"type": "uri_folder"}},
	})
	use := p.component("use", object{
		"type": "command", "command": "forever ${{inputs.i}} $[[--more ${{inputs.more}}]]",
		"inputs":  object{"i": object{"type": "uri_folder"}, "more": object{"type": "string", "optional": true}},
		"outputs": object{"r": object{"type": "uri_folder"}},
	})
	return object{
		"jobType": "Pipeline", "inputs": object{"n": object{"jobInputType": "literal", "value": "3"}}, "outputs": object{"all": object{"jobOutputType": "uri_folder"}},
		"jobs": object{
			"a": object{"type": "command", "componentId": make, "inputs": object{"n": value("${{parent.inputs.n}}")}},
			"b": object{
				"type": "command", "componentId": use, "inputs": object{"i": value("${{parent.jobs.a.outputs.o}}")},
				"outputs": object{"r": object{"type": "literal", "value": "${{parent.outputs.all}}"}},
			},
		},
	}
}

func TestPipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 4)
		if why := p.offer("pipe", p.chain()); why != "" {
			t.Fatal(why)
		}
		p.until("pipe_a", berth.Running)
		if s, st := p.job("pipe"); s != berth.Running || st.Reason != "0 of 2 steps have ended; it waits for a (Running)" {
			t.Errorf("%s: %s", s, st.Reason)
		}
		if code, _ := p.do("GET", p.ws+"/jobs/pipe_b", nil); code != http.StatusNotFound {
			t.Errorf("b has begun: %d", code)
		}
		p.driver.Finish(p.task("pipe_a"), berth.Exit{})
		p.until("pipe_b", berth.Running)
		l, ok := p.driver.Launch(p.task("pipe_b"))
		if !ok || l.Command != "forever ${{inputs.i}} " || !strings.Contains(l.Inputs["i"].URI, "/azureml/pipe_a/o/") || !strings.Contains(l.Outputs["r"].URI, "/azureml/pipe/all/") {
			t.Errorf("%+v", l)
		}
		p.driver.Finish(p.task("pipe_b"), berth.Exit{})
		st := p.until("pipe", berth.Completed)
		if st.Reason != "all 2 steps completed" || len(st.Steps) != 2 {
			t.Errorf("%+v", st)
		}
		if got := p.tale("pipe"); got != "a: begins as job pipe_a\na: Completed\nb: begins as job pipe_b\nb: Completed\nthe pipeline ends: all 2 steps completed" {
			t.Errorf("%s", got)
		}
	})
}

// tale is what the log of a pipeline says, without the times.
func (p *fixture) tale(name string) string {
	_, log := p.do("GET", p.ws+"/jobs/"+name+"/logs", nil)
	var lines []string
	for line := range strings.Lines(string(log)) {
		if _, rest, ok := strings.Cut(line, "Z] "); ok {
			line = rest
		}
		if before, _, ok := strings.Cut(line, "Completed after "); ok {
			line = before + "Completed"
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}

// diamond is a pipeline of four steps: first; then left and right at once; then last, inside a
// pipeline of its own.
func (p *fixture) diamond(settings object, command string) object {
	pass := p.component("pass", object{
		"type": "command", "command": command, "inputs": object{"i": object{"type": "uri_folder", "optional": true}, "j": object{"type": "uri_folder", "optional": true}},
		"outputs": object{"o": object{"type": "uri_folder"}},
	})
	inner := p.component("inner", object{
		"type": "pipeline", "inputs": object{"i": object{"type": "uri_folder"}, "j": object{"type": "uri_folder"}}, "outputs": object{"o": object{"type": "uri_folder"}},
		"jobs": object{"only": object{
			"type": "command", "componentId": pass, "inputs": object{"i": value("${{parent.inputs.i}}"), "j": value("${{parent.inputs.j}}")},
			"outputs": object{"o": object{"type": "literal", "value": "${{parent.outputs.o}}"}},
		}},
	})
	step := func(component string, from ...string) object {
		in := object{}
		for i, n := range from {
			in[string(rune('i'+i))] = value("${{parent.jobs." + n + ".outputs.o}}")
		}
		return object{"componentId": component, "inputs": in}
	}
	return object{"jobType": "Pipeline", "settings": settings, "jobs": object{
		"first": step(pass), "left": step(pass, "first"), "right": step(pass, "first"), "last": step(inner, "left", "right"),
	}}
}

// TestPipelineNames: the job of a step gets no name that belongs to somebody else, such as that of
// a deleted job whose run is there.
func TestPipelineNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 4)
		synctest.Wait()
		p.stop()
		p.options.CheckJob = func(_ *store.Tx, workspace, name, user string) error {
			if name == "pipe_a" && user == p.user && workspace != "" {
				return berth.Errorf(berth.Conflict, "there is a run of somebody else")
			}
			return nil
		}
		p.run()
		if why := p.offer("pipe", p.chain()); why != "" {
			t.Fatal(why)
		}
		p.until("pipe_a_2", berth.Running)
	})
}

func TestPipelineNested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 4)
		if why := p.offer("d", p.diamond(nil, "forever")); why != "" {
			t.Fatal(why)
		}
		for _, step := range []string{"d_first", "d_left", "d_right", "d_last_only"} {
			p.until(step, berth.Running)
			if step == "d_left" {
				p.until("d_right", berth.Running)
				if n := p.driver.Running(); n != 2 {
					t.Errorf("%d run", n)
				}
			}
			if step == "d_last_only" {
				l, _ := p.driver.Launch(p.task(step))
				if !strings.Contains(l.Inputs["j"].URI, "/d_right/o/") || !strings.Contains(l.Outputs["o"].URI, "/d_last/o/") {
					t.Errorf("%+v", l)
				}
			}
			p.driver.Finish(p.task(step), berth.Exit{})
			p.until(step, berth.Completed)
		}
		p.until("d", berth.Completed)
		p.until("d_last", berth.Completed)
		want := "first: begins as job d_first\nfirst: Completed\nleft: begins as job d_left\nright: begins as job d_right\nleft: Completed\nright: Completed\n" +
			"last: begins as job d_last\nlast: Completed\nthe pipeline ends: all 4 steps completed"
		if got := p.tale("d"); got != want {
			t.Errorf("%s", got)
		}
		if got := p.tale("d_last"); got != "only: begins as job d_last_only\nonly: Completed\nthe pipeline ends: its step completed" {
			t.Errorf("%s", got)
		}
		// The history lists the children of each, the list of jobs only the pipeline.
		if got := p.names("/history/v1.0"+p.ws+"/runs/d/children", "displayName"); got != "first last left right" {
			t.Errorf("children %s", got)
		}
		if got := p.names("/history/v1.0"+p.ws+"/runs/d_last/children", "runId"); got != "d_last_only" {
			t.Errorf("children %s", got)
		}
		// A step of a step names the pipeline it is in, and the one at the top.
		if got := p.names("/history/v1.0"+p.ws+"/runs/d_last/children", "parentRunId") + p.names("/history/v1.0"+p.ws+"/runs/d_last/children", "rootRunId"); got != "d_lastd" {
			t.Errorf("parent and root %s", got)
		}
		for path, want := range map[string][]string{
			p.ws + "/jobs/d_last_only":               {`"parentJobName":"d_last"`, `"azureml.pipelinerunid":"d_last"`, `"azureml.runsource":"azureml.StepRun"`},
			"/history/v1.0" + p.ws + "/runs/d_right": {`"azureml.pipelinerunid":"d"`, `"azureml.runsource":"azureml.StepRun"`},
			p.ws + "/jobs/d":                         {`"parentJobName":null`, `"properties":{"azureml.runsource":"azureml.PipelineRun"}`},
			"/history/v1.0" + p.ws + "/runs/d":       {`"properties":{"azureml.runsource":"azureml.PipelineRun"}`},
		} {
			_, b := p.do("GET", path, nil)
			for _, w := range want {
				if !strings.Contains(string(b), w) {
					t.Errorf("%s: %s is not in %s", path, w, b)
				}
			}
		}
		if got := p.names(p.ws+"/jobs?$top=1", "name"); got != "d" {
			t.Errorf("jobs %s", got)
		}
		// A component made of the job has its steps, and runs.
		id := p.component("again", object{"type": "pipeline", "sourceJobId": p.ws + "/jobs/d"})
		if why := p.offer("e", object{"jobType": "Pipeline", "jobs": object{"all": object{"type": "pipeline", "componentId": id}}}); why != "" {
			t.Fatal(why)
		}
		p.until("e_all_first", berth.Running)
		if code, b := p.do("DELETE", p.ws+"/jobs/d", nil); code != http.StatusAccepted {
			t.Errorf("%d %s", code, b)
		}
		for _, name := range []string{"d", "d_first", "d_last", "d_last_only"} {
			if code, _ := p.do("GET", p.ws+"/jobs/"+name, nil); code != http.StatusNotFound {
				t.Errorf("%s is left: %d", name, code)
			}
		}
	})
}

// TestPipelineOfComponent: a job that names a pipeline component has its steps, its defaults and no
// others.
func TestPipelineOfComponent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 4)
		say := p.component("say", object{
			"type": "command", "command": "sleep 1; echo ${{inputs.word}} $[[${{inputs.more}}]]",
			"inputs":  object{"word": object{"type": "string"}, "more": object{"type": "string", "optional": true}},
			"outputs": object{"o": object{"type": "uri_folder"}},
		})
		whole := p.component("whole", object{
			"type": "pipeline", "inputs": object{"word": object{"type": "string"}, "often": object{"type": "string", "default": "twice"}, "more": object{"type": "string", "optional": true}},
			"jobs": object{
				"a": object{"type": "command", "componentId": say, "inputs": object{"word": value("${{parent.inputs.word}}"), "more": value("${{parent.inputs.more}}")}},
				"b": object{
					"type": "command", "componentId": say, "inputs": object{"word": value("${{parent.inputs.often}}")},
					"outputs": object{"o": object{"type": "literal", "value": "${{parent.outputs.said}}"}},
				},
			},
			"outputs": object{"said": object{"type": "uri_folder"}},
		})
		job := object{"jobType": "Pipeline", "componentId": whole, "jobs": object{}}
		if why := p.offer("c", job); why != "properties.inputs.word is required by the component and was not given" {
			t.Errorf("%q", why)
		}
		job["inputs"] = object{"word": object{"jobInputType": "literal", "value": "hello"}}
		if why := p.offer("c", job); why != "" {
			t.Fatal(why)
		}
		p.until("c_a", berth.Running)
		p.until("c_b", berth.Running)
		for name, want := range map[string]string{"c_a": "hello", "c_b": "twice"} {
			if l, _ := p.driver.Launch(p.task(name)); l.Inputs["word"].Value != want || strings.Contains(l.Command, "more") {
				t.Errorf("%s: %+v", name, l)
			}
		}
		if l, _ := p.driver.Launch(p.task("c_b")); !strings.Contains(l.Outputs["o"].URI, "/azureml/c/said/") {
			t.Errorf("%+v", l)
		}
		p.until("c", berth.Completed)
		job["jobs"] = object{"only": object{"componentId": say, "inputs": object{"word": value("${{parent.inputs.often}}")}, "outputs": object{"o": object{"value": "${{parent.outputs.said}}"}}}}
		if why := p.offer("e", job); why != "" { // some clients send steps and leave out the rest
			t.Error(why)
		}
		p.until("e_only", berth.Running)
		if why := p.offer("d", object{"jobType": "Pipeline", "componentId": say}); !strings.Contains(why, "requires a pipeline component") {
			t.Errorf("%q", why)
		}
	})
}

// names is one field of each thing in a list.
func (p *fixture) names(path, field string) string {
	p.t.Helper()
	_, b := p.do("GET", path, nil)
	var v struct{ Value []object }
	if err := json.Unmarshal(b, &v); err != nil {
		p.t.Fatalf("%v in %s", err, b)
	}
	var out []string
	for _, x := range v.Value {
		s, _ := x[field].(string)
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func TestPipelineFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 8)
		for _, c := range []struct {
			name     string
			settings object
			right    berth.JobStatus
			reason   string
		}{
			{"stop", nil, berth.Canceled, "step left failed: the command ended with exit code 3; 1 did not run"},
			{"on", object{"continue_on_step_failure": true}, berth.Completed, "step left failed: the command ended with exit code 3; 1 did not run"},
		} {
			if why := p.offer(c.name, p.diamond(c.settings, "forever")); why != "" {
				t.Fatal(why)
			}
			p.until(c.name+"_first", berth.Running)
			p.driver.Finish(p.task(c.name+"_first"), berth.Exit{})
			p.until(c.name+"_left", berth.Running)
			p.until(c.name+"_right", berth.Running)
			p.driver.Finish(p.task(c.name+"_left"), berth.Exit{Code: 3})
			p.until(c.name+"_left", berth.Failed)
			if c.right == berth.Completed {
				p.driver.Finish(p.task(c.name+"_right"), berth.Exit{})
			}
			if st := p.until(c.name+"_right", c.right); c.right == berth.Canceled && st.Reason != "another step of the pipeline failed" {
				t.Errorf("right: %s", st.Reason)
			}
			if st := p.until(c.name, berth.Failed); st.Reason != c.reason {
				t.Errorf("%s: %s", c.name, st.Reason)
			}
			if !strings.HasSuffix(p.tale(c.name), "the pipeline ends: "+c.reason) {
				t.Errorf("%s", p.tale(c.name))
			}
		}
	})
}

func TestPipelineCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 8)
		if why := p.offer("d", p.diamond(nil, "forever")); why != "" {
			t.Fatal(why)
		}
		for _, step := range []string{"d_first", "d_left", "d_right"} {
			p.until(step, berth.Running)
			p.driver.Finish(p.task(step), berth.Exit{})
		}
		p.until("d_last_only", berth.Running)
		if code, _ := p.do("DELETE", p.ws+"/jobs/d_first", nil); code != http.StatusConflict {
			t.Errorf("a step of a running pipeline can be deleted: %d", code)
		}
		if code, b := p.do("POST", p.ws+"/jobs/d/cancel", nil); code != http.StatusAccepted {
			t.Fatalf("%d %s", code, b)
		}
		if st := p.until("d", berth.Canceled); st.Reason != "canceled by the user" {
			t.Errorf("%s", st.Reason)
		}
		p.until("d_last", berth.Canceled)
		p.until("d_last_only", berth.Canceled)
		if why := p.offer("soon", p.diamond(nil, "forever")); why != "" {
			t.Fatal(why)
		}
		synctest.Wait()
		p.stop()
		if why := p.offer("never", p.diamond(nil, "forever")); why != "" {
			t.Fatal(why)
		}
		p.do("POST", p.ws+"/jobs/never/cancel", nil)
		p.run()
		if st := p.until("never", berth.Canceled); st.Reason != "canceled before a step began" {
			t.Errorf("%s", st.Reason)
		}
		if got := p.tale("never"); got != "the pipeline ends: canceled before a step began" {
			t.Errorf("%s", got)
		}
	})
}

// TestPipelineCrash ends the loops after every few commits, wherever they are: no step is lost,
// none runs twice, and the log tells each thing once.
func TestPipelineCrash(t *testing.T) {
	for life := 1; life <= 12; life++ {
		synctest.Test(t, func(t *testing.T) {
			p := build(t, 8)
			synctest.Wait()
			p.stop()
			p.submit("d_left", "exit 0") // a name that a step would have
			if why := p.offer("d", p.diamond(nil, "exit 0")); why != "" {
				t.Fatal(why)
			}
			ended := func() bool { s, _ := p.job("d"); return s.Terminal() }
			lives := 0
			for ; !ended() && lives < 300; lives++ {
				p.live(life)
			}
			p.run()
			p.until("d", berth.Completed)
			synctest.Wait()
			var started []string
			for _, id := range p.driver.Starts() {
				started = append(started, string(id))
			}
			slices.Sort(started)
			if n := len(slices.Compact(started)); n != 5 {
				t.Errorf("started %v", started)
			}
			if got := p.names("/history/v1.0"+p.ws+"/runs/d/children", "runId"); got != "d_first d_last d_left_2 d_right" {
				t.Errorf("children %s", got)
			}
			lines := strings.Split(p.tale("d"), "\n")
			if len(lines) != 9 || lines[8] != "the pipeline ends: all 4 steps completed" {
				t.Errorf("after %d lives:\n%s", lives, strings.Join(lines, "\n"))
			}
		})
	}
}

// live runs the loops until so many batches of events have come, or nothing happens for a while.
func (p *fixture) live(batches int) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	w := p.db.Watch(ctx, p.db.Rev())
	done := make(chan error, 1)
	c := control.New(p.options)
	go func() { done <- c.Run(ctx) }()
	for range batches {
		if _, err := w.Next(); err != nil {
			break
		}
	}
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		p.t.Errorf("control ended: %v", err)
	}
}

func TestPipelineServerless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 4)
		id := p.component("big", object{"type": "command", "command": "sleep 5"})
		step := object{"type": "command", "componentId": id, "resources": object{"instance_type": "Standard_DS2_v2"}}
		if why := p.offer("s", object{"jobType": "Pipeline", "settings": object{"default_compute": "azureml:serverless"}, "jobs": object{"a": step}}); why != "" {
			t.Fatal(why)
		}
		st := p.until("s_a", berth.Running)
		if st.Compute != "serverless-standard_ds2_v2" {
			t.Errorf("on %s", st.Compute)
		}
		p.until("s", berth.Completed)
		// A pool that somebody deletes just then ends the step, and holds up nobody.
		first := object{"componentId": p.component("first", object{"type": "command", "command": "sleep 60", "outputs": object{"o": object{"type": "uri_folder"}}})}
		next := object{"componentId": p.component("next", object{"type": "command", "command": "true", "inputs": object{"i": object{"type": "uri_folder"}}})}
		next["inputs"], next["resources"] = object{"i": value("${{parent.jobs.a.outputs.o}}")}, object{"instance_type": "Standard_DS2_v2"}
		if why := p.offer("gone", object{"jobType": "Pipeline", "jobs": object{"a": first, "b": next, "c": step}}); why != "" {
			t.Fatal(why)
		}
		p.until("gone_a", berth.Running)
		p.until("gone_c", berth.Running)
		if code, b := p.do("DELETE", p.ws+"/computes/serverless-standard_ds2_v2?drain=true", nil); code >= 300 {
			t.Fatalf("%d %s", code, b)
		}
		p.driver.Finish(p.task("gone_a"), berth.Exit{})
		if st := p.until("gone", berth.Failed); !strings.HasPrefix(st.Reason, "step b failed: the pool for Standard_DS2_v2 is being removed") {
			t.Errorf("%s", st.Reason)
		}
		for _, c := range []struct {
			step object
			want string
		}{
			{object{"componentId": id, "computeId": "nowhere"}, `step b: there is no compute "nowhere"`},
			{object{"componentId": id, "resources": object{"instance_type": "Standard_Huge"}}, "step b: resources.instance_type"},
			{object{"componentId": "azureml://registries/azureml/components/x/versions/1"}, "step b: component x is in registry azureml"},
			{object{"type": "spark"}, "step b is of type spark"},
		} {
			if why := p.offer("bad", object{"jobType": "Pipeline", "jobs": object{"b": c.step}}); !strings.Contains(why, c.want) {
				t.Errorf("%q, want %q", why, c.want)
			}
		}
	})
}

// TestPipelineBudget: a pipeline holds what all its steps may cost; what a step holds is its own
// once it has begun, and nothing is held when all is over.
func TestPipelineBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 0, 2, nil)
		p.budget("workspace", 1000)
		d := p.diamond(object{"default_compute": "cpu"}, "sleep 600")
		if why := p.offer("d", d); why != "" {
			t.Fatal(why)
		}
		all := p.standing("workspace").Reserved
		_, whole := p.job("d")
		if all == 0 || len(whole.Steps) != 4 {
			t.Fatalf("%v are reserved: %+v", all, whole)
		}
		for i, step := range []string{"d_first", "d_left", "d_right", "d_last_only"} {
			p.until(step, berth.Running)
			left := p.standing("workspace")
			if want := all * float64(4-i) / 4; math.Abs(left.Reserved-want) > all/50 {
				t.Errorf("%s: %v are reserved, want %v", step, left.Reserved, want)
			}
			p.cluster.Finish(p.task(step), berth.Exit{})
		}
		p.until("d", berth.Completed)
		synctest.Wait()
		if left := p.standing("workspace"); left.Reserved != 0 {
			t.Errorf("%v are reserved for nothing", left.Reserved)
		}
		p.budget("workspace", p.standing("workspace").Spent*1.01)
		if why := p.offer("e", d); !strings.Contains(why, "4 steps") {
			t.Errorf("a pipeline too dear is taken: %q", why)
		}
	})
}
