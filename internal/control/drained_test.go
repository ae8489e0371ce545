package control_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/fake"
)

// TestDrainedMachine: a machine of a pool that is there and has no room for jobs gets none: what
// was meant for it goes to another, and what waits says why. What runs there goes on, also while
// the compute is detached.
func TestDrainedMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 2)
		full := false
		far := withFar(t, p, "pool", fake.Options{Outcome: func(l berth.Launch) fake.Outcome {
			if full && l.Node == "a" {
				return fake.Outcome{Refuse: &driver.Unsent{Err: berth.Errorf(berth.Unavailable, "machine a: no space left on device")}}
			}
			return fake.Script(l)
		}})
		at := berth.AttachedState{
			TokenHash: "x", Machine: "m", Host: "h", Connected: true, Session: "1", Since: time.Now(), Slots: 4, Distributed: true, MaxNodes: 2,
			Machines: []berth.AttachedMachine{{Name: "a", Address: "10.0.0.1", Slots: 3}, {Name: "b", Address: "10.0.0.2", Slots: 1}},
		}
		at.Machines[1].Away = "it is switched off"
		p.machineIs("pool", at)
		p.on("pool", "runs", "forever", nil)
		p.until("runs", berth.Running)
		full = true
		p.on("pool", "moved", "forever", nil)
		time.Sleep(time.Second)
		if tasks := p.tasks("moved"); len(tasks) != 1 || tasks[0].Node != "a" || tasks[0].State != berth.TaskPlaced {
			t.Fatalf("moved: %+v", tasks)
		}
		at.Machines[0].Drained, at.Machines[1].Away = "its disk is full", ""
		p.machineIs("pool", at)
		p.until("moved", berth.Running)
		if tasks := p.tasks("moved"); len(tasks) != 2 || tasks[1].Node != "b" {
			t.Errorf("moved: %+v", tasks)
		}
		p.on("pool", "waits", "true", nil)
		time.Sleep(time.Minute)
		if s, st := p.job("waits"); s != berth.Queued || !strings.Contains(st.Reason, "a is drained: its disk is full") {
			t.Errorf("waits is %s: %s", s, st.Reason)
		}
		p.agree("with a machine that is drained")
		full, at.Machines[0].Drained = false, ""
		p.machineIs("pool", at)
		p.until("waits", berth.Completed)
		at.Machines[0].Drained = "its disk is full"
		p.machineIs("pool", at)
		if code, b := p.do(http.MethodDelete, p.ws+"/computes/pool?drain=true", nil); code != http.StatusAccepted {
			t.Fatalf("%d %s", code, b)
		}
		time.Sleep(time.Minute)
		if s, _ := p.job("runs"); s != berth.Running {
			t.Errorf("runs, on a machine that is there, is %s", s)
		}
		for _, name := range []string{"runs", "moved"} {
			far.Finish(p.tasks(name)[len(p.tasks(name))-1].ID, berth.Exit{})
			p.until(name, berth.Completed)
		}
	})
}
