package control_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver/fake"
)

// asksGPUs are the properties of a job that asks for GPUs.
func asksGPUs(n string) map[string]any {
	return map[string]any{"properties": map[string]any{berth.GPUsProperty: n}}
}

// poolOfGPUs attaches three machines that run three jobs each and have 2, 1 and no GPUs.
func poolOfGPUs(t *testing.T, p *fixture) (*fake.Driver, berth.AttachedState) {
	far := withFar(t, p, "pool", fake.Options{})
	at := berth.AttachedState{
		TokenHash: "x", Machine: "m", Host: "h", Connected: true, Session: "1", Since: time.Now(), Slots: 9, Distributed: true, MaxNodes: 3,
		Machines: []berth.AttachedMachine{
			{Name: "a", Address: "10.0.0.1", Slots: 3, GPUs: 2, CPUs: 4, Memory: 8 << 30},
			{Name: "b", Address: "10.0.0.2", Slots: 3, GPUs: 1, CPUs: 4, Memory: 8 << 30},
			{Name: "c", Address: "10.0.0.3", Slots: 3, CPUs: 4, Memory: 8 << 30},
		},
	}
	p.machineIs("pool", at)
	return far, at
}

// TestGPUsOfPool: a job goes to a machine of a pool that has its GPUs free, waits with the reason
// where none has, and runs once some are, also after the server was restarted. A plan says the same
// beforehand, and what no machine has is refused.
func TestGPUsOfPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 2)
		far, at := poolOfGPUs(t, p)
		for _, j := range []struct{ name, gpus, node string }{
			{"two", "2", "a"}, {"one", "1", "b"}, {"cpu", "0", "a"},
		} {
			p.on("pool", j.name, "forever", asksGPUs(j.gpus))
			p.until(j.name, berth.Running)
			if tasks := p.tasks(j.name); tasks[0].Node != j.node {
				t.Errorf("%s runs on %s", j.name, tasks[0].Node)
			}
		}
		p.agree("with GPUs in use")
		const why = "needs 1 GPU: 2 of 2 GPUs of a are in use by job two; 1 of 1 GPU of b is in use by job one"
		var plan berth.Plan
		body := map[string]any{"properties": map[string]any{
			"jobType": "Command", "command": "true", "computeId": "pool", "properties": map[string]any{berth.GPUsProperty: "1"},
		}}
		_, b := p.do("POST", p.ws+"/jobs/late/plan", body)
		if err := json.Unmarshal(b, &plan); err != nil || plan.Verdict != berth.PlanWait || plan.Reason != why {
			t.Errorf("%v, %s: %s", err, plan.Verdict, plan.Reason)
		}
		p.on("pool", "late", "forever", asksGPUs("1"))
		p.on("pool", "after", "true", asksGPUs("0"))
		p.until("after", berth.Completed)
		if s, st := p.job("late"); s != berth.Queued || st.Reason != why {
			t.Errorf("late is %s: %s", s, st.Reason)
		}
		p.stop()
		p.run()
		time.Sleep(time.Minute)
		p.agree("after a restart")
		if s, st := p.job("late"); s != berth.Queued || st.Reason != why {
			t.Errorf("after a restart late is %s: %s", s, st.Reason)
		}
		at.Machines[1].Away = "the connection was cut"
		p.machineIs("pool", at)
		far.Finish(p.tasks("two")[0].ID, berth.Exit{})
		p.until("late", berth.Running)
		if node := p.tasks("late")[0].Node; node != "a" {
			t.Errorf("late runs on %s", node)
		}
		at.Machines[1].Away = ""
		p.machineIs("pool", at)
		p.agree("after a machine was away")
		if code, b := p.put("large", "pool", "true", asksGPUs("3")); code != http.StatusBadRequest || !strings.Contains(string(b), "the largest machine of compute pool has 2 GPUs") {
			t.Errorf("a job that no machine can run: %d %s", code, b)
		}

		// While a machine has not said what it has, nobody can tell.
		at.Machines[2].Memory, at.Machines[2].Away = 0, "it has not been connected to yet"
		p.machineIs("pool", at)
		p.on("pool", "large", "true", asksGPUs("3"))
		synctest.Wait()
		if s, st := p.job("large"); s != berth.Queued || !strings.Contains(st.Reason, "needs a machine with 3 GPUs, and no machine of pool has more than 2: c is drained: it has not been connected to yet") {
			t.Errorf("large is %s: %s", s, st.Reason)
		}
		at.Machines[2].Memory, at.Machines[2].Away, at.Machines[2].GPUs = 8<<30, "", 4
		p.machineIs("pool", at)
		p.until("large", berth.Completed)
	})
}
