package control_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/kind"
)

// toySweep runs a command once for each of a list of values, so many at once. It shows what a new
// kind of job with children takes: this type, and the line that names it. Nothing else of the
// server knows it.
type toySweep struct{}

type toyProps struct {
	ExperimentName string   `json:"experimentName"`
	Command        string   `json:"command"`
	Values         []string `json:"values"`
	AtOnce         int      `json:"atOnce"`
}

func readToy(raw json.RawMessage) (p toyProps, err error) {
	if err = json.Unmarshal(raw, &p); err == nil && len(p.Values) == 0 {
		err = berth.Errorf(berth.Invalid, "properties.values is empty")
	}
	return p, err
}

func (p toyProps) children() (names []string) {
	for _, v := range p.Values {
		names = append(names, "v"+v)
	}
	return names
}

// job is the properties of the job for a value.
func (p toyProps) job(child string) map[string]any {
	return map[string]any{
		"jobType": "Command", "experimentName": p.ExperimentName, "displayName": child, "command": p.Command, "computeId": "local",
		"environmentVariables": map[string]any{"VALUE": strings.TrimPrefix(child, "v")},
	}
}

func (toySweep) Validate(raw json.RawMessage) error { _, err := readToy(raw); return err }
func (toySweep) Word() string                       { return "sweep" }
func (toySweep) RunType() string                    { return "toy.SweepRun" }

func (toySweep) Log(s berth.JobStatus, st berth.JobState) string {
	return kind.ParentLog("sweep", s, st)
}

func (toySweep) Step(j kind.Job, _ []*berth.Task) kind.Step {
	p, err := readToy(j.Props)
	if err != nil {
		return kind.Step{Status: berth.Failed, State: j.State}
	}
	return kind.StepChildren(j, kind.Children{Names: p.children(), AtOnce: p.AtOnce, Continue: true})
}

func (toySweep) Child(of kind.Parent, child string) (kind.ChildJob, error) {
	p, err := readToy(of.Props)
	if err != nil {
		return kind.ChildJob{}, err
	}
	body, err := json.Marshal(map[string]any{"properties": p.job(child)})
	return kind.ChildJob{Body: body, Type: "Command", Experiment: p.ExperimentName}, err
}

func (toySweep) Unfold(of kind.Parent) (all []kind.Unfolded, err error) {
	p, err := readToy(of.Props)
	for _, child := range p.children() {
		all = append(all, kind.Unfolded{Path: child, Root: child, Props: p.job(child)})
	}
	return all, err
}

// TestNewKindWithChildren: a kind that only this file knows is taken, checked, planned, run,
// logged, shown and canceled.
func TestNewKindWithChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 4)
		synctest.Wait()
		p.stop()
		p.kinds = map[string]kind.Kind{"sweep": toySweep{}} // the line
		p.options.KindOf = p.kindOf
		p.run()
		sweep := func(command string, values ...string) object {
			return object{"jobType": "Sweep", "experimentName": "e", "command": command, "values": values, "atOnce": 2}
		}
		if why := p.offer("none", sweep("true")); !strings.Contains(why, "values is empty") {
			t.Errorf("a sweep of nothing: %q", why)
		}
		if why := p.offer("wrong", sweep("echo ${{inputs.none}}", "1")); !strings.Contains(why, "step v1") {
			t.Errorf("a child that could not run: %q", why)
		}
		code, b := p.do("POST", p.ws+"/jobs/x/plan", object{"properties": sweep("true", "1", "2", "3")})
		var plan berth.Plan
		if err := json.Unmarshal(b, &plan); err != nil || code != 200 || plan.Type != "sweep" || len(plan.Steps) != 3 {
			t.Errorf("plan: %d %v %s", code, err, b)
		}
		if why := p.offer("s", sweep("forever", "1", "2", "3")); why != "" {
			t.Fatal(why)
		}
		p.until("s_v1", berth.Running)
		p.until("s_v2", berth.Running)
		if st := p.until("s", berth.Running); len(st.Steps) != 3 || st.Steps[2].Job != "" || !strings.HasPrefix(st.Reason, "0 of 3 steps have ended; it waits for v1") {
			t.Errorf("%+v", st)
		}
		if l, _ := p.driver.Launch(p.task("s_v2")); l.Env["VALUE"] != "2" {
			t.Errorf("%v", l.Env)
		}
		p.driver.Finish(p.task("s_v1"), berth.Exit{Code: 3})
		p.until("s_v3", berth.Running)
		p.driver.Finish(p.task("s_v2"), berth.Exit{})
		p.driver.Finish(p.task("s_v3"), berth.Exit{})
		if st := p.until("s", berth.Failed); !strings.HasPrefix(st.Reason, "step v1 failed") {
			t.Errorf("reason %q", st.Reason)
		}
		_, b = p.do("GET", "/history/v1.0"+p.ws+"/runs/s", nil)
		if !strings.Contains(string(b), `"runType":"toy.SweepRun"`) {
			t.Errorf("run history: %s", b)
		}
		_, b = p.do("GET", p.ws+"/jobs/s/logs", nil)
		if !strings.Contains(string(b), "v3: Completed after") || !strings.Contains(string(b), "the sweep ends: step v1 failed") {
			t.Errorf("log: %s", b)
		}
		if why := p.offer("c", sweep("forever", "1", "2", "3")); why != "" {
			t.Fatal(why)
		}
		p.until("c_v1", berth.Running)
		p.do("POST", p.ws+"/jobs/c/cancel", nil)
		p.until("c", berth.Canceled)
		p.until("c_v1", berth.Canceled)
	})
}
