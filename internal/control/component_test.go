package control_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

// TestComponentChangedMeanwhile: a step that is made of a component which has changed since the
// pipeline was submitted cannot do what its user could not have submitted: run on another user's
// machine, or run more than was checked.
func TestComponentChangedMeanwhile(t *testing.T) {
	leaf := func(id, compute string) object {
		n := object{"type": "command", "componentId": id, "inputs": object{"i": value("${{parent.inputs.i}}")}}
		if compute != "" {
			n["computeId"] = compute
		}
		return n
	}
	nested := object{"type": "pipeline", "componentId": "azureml:inner@latest", "inputs": object{"i": value("${{parent.inputs.i}}")}}
	for name, c := range map[string]struct {
		jobs func(use string) object
		says string
	}{
		"another user's machine": {func(use string) object { return object{"x": leaf(use, "azureml:theirs")} }, "compute theirs"},
		"itself twice":           {func(string) object { return object{"x": nested, "y": nested} }, "1000 steps in all, and be 16 deep"},
		"more commands": {func(use string) object {
			return object{"x": leaf(use, ""), "y": leaf(use, "")}
		}, "its component has changed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := build(t, 4)
				p.role = auth.User
				theirMachine(t, p)
				make := p.component("make", object{"type": "command", "command": "forever ${{outputs.o}}", "outputs": object{"o": object{"type": "uri_folder"}}})
				use := p.component("use", object{"type": "command", "command": "true ${{inputs.i}}", "inputs": object{"i": object{"type": "uri_folder"}}})
				inner := func(jobs object) object {
					return object{"type": "pipeline", "inputs": object{"i": object{"type": "uri_folder"}}, "jobs": jobs}
				}
				p.component("inner", inner(object{"x": leaf(use, "")}))
				why := p.offer("p", object{"jobType": "Pipeline", "jobs": object{
					"a": object{"type": "command", "componentId": make},
					"b": object{"type": "pipeline", "componentId": "azureml:inner@latest", "inputs": object{"i": value("${{parent.jobs.a.outputs.o}}")}},
				}})
				if why != "" {
					t.Fatal(why)
				}
				p.until("p_a", berth.Running)
				if code, b := p.do("PUT", p.ws+"/components/inner/versions/2", object{"properties": object{"componentSpec": inner(c.jobs(use))}}); code != 201 {
					t.Fatalf("%d %s", code, b)
				}
				p.driver.Finish(p.task("p_a"), berth.Exit{})
				if st := p.until("p", berth.Failed); !strings.Contains(st.Reason, c.says) {
					t.Errorf("reason %q", st.Reason)
				}
				if n := len(p.driver.Starts()); n != 1 {
					t.Errorf("%d tasks were started", n)
				}
			})
		})
	}
}

// theirMachine is a machine over SSH that bob attached for himself.
func theirMachine(t *testing.T, p *fixture) {
	t.Helper()
	err := p.db.Update(t.Context(), func(tx *store.Tx) error {
		return tx.Insert(&store.Doc{
			Workspace: space.Key(), Kind: "computes", Name: "theirs", CreatedBy: "bob", Own: []byte(`{"attached":{"host":"h","machine":"m","connected":true}}`),
			Body: []byte(`{"properties":{"computeType":"VirtualMachine","properties":{"connection":"ssh"}}}`),
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}
