package control_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/fake"
)

// withFar gives the fixture an attached compute whose target is a fake one.
func withFar(t *testing.T, p *fixture, name string, o fake.Options) *fake.Driver {
	t.Helper()
	synctest.Wait()
	p.stop()
	o.Report = func(rs []berth.Report) { p.reports.Go(func() { p.report(rs) }) }
	far := fake.New(o)
	t.Cleanup(func() { far.Close() })
	p.far = far
	p.options.Targets = fake.Registry(map[string]driver.Driver{"local": p.driver, "amlcompute": p.cluster, "agent": far}, p.options.Log)
	p.run()
	insert(t, p, name)
	return far
}

var twoNodes = map[string]any{"resources": map[string]any{"instanceCount": 2}, "distribution": map[string]any{"distributionType": "PyTorch", "processCountPerInstance": 1}}

// TestGangOnTarget: a target that starts gangs is given all tasks of a job at once, also by a
// server that begins again before it was answered; it adds the addresses. What it cannot run is
// refused.
func TestGangOnTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 2)
		far := withFar(t, p, "site", fake.Options{Gangs: 3})
		if code, b := p.put("early", "site", "true", twoNodes); code != http.StatusConflict || !strings.Contains(string(b), "has not been connected yet") {
			t.Errorf("before it was connected: %d %s", code, b)
		}
		at := berth.AttachedState{
			TokenHash: "x", Machine: "m", Host: "h", Connected: true, Session: "1", Since: time.Now(), Slots: 10, Distributed: true, MaxNodes: 3,
		}
		p.machineIs("site", at)
		four := map[string]any{"resources": map[string]any{"instanceCount": 4}}
		if code, b := p.put("large", "site", "true", four); code != http.StatusBadRequest || !strings.Contains(string(b), "compute site has 3 nodes") {
			t.Errorf("four nodes of three: %d %s", code, b)
		}
		p.on("site", "a", "sleep 60", twoNodes)
		p.until("a", berth.Running)
		tasks := p.tasks("a")
		if len(tasks) != 2 || len(far.Starts()) != 2 {
			t.Fatalf("tasks %+v, started %v", tasks, far.Starts())
		}
		for i, task := range tasks {
			l, ok := far.Launch(task.ID)
			if !ok || l.Group == nil || l.Group.Node != i || len(l.Group.Nodes) != 2 || l.Group.Nodes[0].Address != "" || l.Group.Port == 0 {
				t.Errorf("task %d: %v, %+v", i, ok, l.Group)
			}
		}
		p.until("a", berth.Completed)

		far.Break("answer", berth.Errorf(berth.Unavailable, "no answer"))
		p.on("site", "b", "forever", twoNodes)
		p.until("b", berth.Running)
		p.stop()
		far.Break("answer", nil)
		p.run()
		synctest.Wait()
		if n := len(far.Starts()); n != 4 {
			t.Errorf("started %d tasks: %v", n, far.Starts())
		}
		far.Finish(p.tasks("b")[1].ID, berth.Exit{Code: 3, Reason: "process 1 (node 1) ended with exit code 3"})
		p.until("b", berth.Failed)
		if _, st := p.job("b"); !strings.Contains(st.Reason, "process 1 (node 1) ended with exit code 3") {
			t.Errorf("b failed because %q", st.Reason)
		}
		p.on("site", "c", "forever", twoNodes)
		p.until("c", berth.Running)
		p.do(http.MethodPost, p.ws+"/jobs/c/cancel", nil)
		p.until("c", berth.Canceled)
		time.Sleep(time.Minute)
	})
}

// TestGangEndsUnevenly: a task of a gang that ends long before the others does not end them, and
// all of them are removed once the last is over.
func TestGangEndsUnevenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 2)
		far := withFar(t, p, "site", fake.Options{Gangs: 3})
		p.machineIs("site", berth.AttachedState{
			TokenHash: "x", Machine: "m", Host: "h", Connected: true, Session: "1", Since: time.Now(), Slots: 10, Distributed: true, MaxNodes: 3,
		})
		for _, restarted := range []bool{false, true} {
			name := "a"
			if restarted {
				name = "b"
			}
			p.on("site", name, "forever", twoNodes)
			p.until(name, berth.Running)
			tasks := p.tasks(name)
			far.Finish(tasks[0].ID, berth.Exit{})
			time.Sleep(time.Minute)
			if restarted {
				p.stop()
				p.run()
				time.Sleep(time.Minute)
			}
			if n := far.Running(); n != 1 {
				t.Fatalf("%d tasks run after one of two has ended", n)
			}
			far.Finish(tasks[1].ID, berth.Exit{})
			p.until(name, berth.Completed)
			time.Sleep(time.Minute)
			for _, task := range tasks {
				if _, ok := far.Launch(task.ID); ok && !restarted { // whoever starts again removes it with the next observation
					t.Errorf("task %s was not removed", task.ID)
				}
			}
		}
	})
}

// TestMachinesAsOne: of several machines that are attached together each is a node. Jobs go to
// those that are there, a job of several nodes to several of them, and what was meant for one that
// is away goes to another.
func TestMachinesAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 2)
		gone := ""
		far := withFar(t, p, "pool", fake.Options{Outcome: func(l berth.Launch) fake.Outcome {
			if l.Node == gone {
				return fake.Outcome{Refuse: &driver.Unsent{Err: berth.Errorf(berth.Unavailable, "machine %s is not connected", l.Node)}}
			}
			return fake.Script(l)
		}})
		at := berth.AttachedState{
			TokenHash: "x", Machine: "m", Host: "h", Connected: true, Session: "1", Since: time.Now(), Slots: 2, Distributed: true, MaxNodes: 2,
			Machines: []berth.AttachedMachine{{Name: "a", Address: "10.0.0.1", Slots: 1}, {Name: "b", Address: "10.0.0.2", Slots: 1}},
		}
		p.machineIs("pool", at)
		p.on("pool", "both", "forever", twoNodes)
		p.until("both", berth.Running)
		var on []string
		for _, task := range p.tasks("both") {
			l, _ := far.Launch(task.ID)
			if l.Node != task.Node || l.Group == nil || l.Group.Nodes[0].Address != "10.0.0.1" || l.Group.Nodes[1].Address != "10.0.0.2" {
				t.Errorf("node %q: %+v", l.Node, l.Group)
			}
			on = append(on, l.Node)
		}
		if !slices.Equal(on, []string{"a", "b"}) {
			t.Errorf("it runs on %q", on)
		}
		p.on("pool", "next", "forever", nil)
		synctest.Wait()
		if s, st := p.job("next"); s != berth.Queued || st.Reason == "" {
			t.Errorf("next is %s: %q", s, st.Reason)
		}
		for _, task := range p.tasks("both") {
			far.Finish(task.ID, berth.Exit{})
		}
		p.until("both", berth.Completed)
		p.until("next", berth.Running)

		// What was chosen for a machine that has just gone is not sent, and goes to the other.
		gone = map[string]string{"a": "b", "b": "a"}[p.tasks("next")[0].Node]
		p.on("pool", "moved", "true", nil)
		time.Sleep(time.Second)
		if tasks := p.tasks("moved"); len(tasks) != 1 || tasks[0].Node != gone || tasks[0].State != berth.TaskPlaced {
			t.Errorf("moved: %+v", tasks)
		}
		at.Machines[slices.IndexFunc(at.Machines, func(m berth.AttachedMachine) bool { return m.Name == gone })].Away = "the connection was cut"
		p.machineIs("pool", at)
		p.on("pool", "wide", "true", twoNodes)
		synctest.Wait()
		if s, st := p.job("wide"); s != berth.Queued || !strings.Contains(st.Reason, gone+" is drained: the connection was cut") {
			t.Errorf("wide is %s: %q", s, st.Reason)
		}
		far.Finish(p.tasks("next")[0].ID, berth.Exit{})
		p.until("moved", berth.Completed)
		if tasks := p.tasks("moved"); len(tasks) != 2 || tasks[1].Node == gone {
			t.Errorf("moved: %+v", tasks)
		}
		gone = ""
		for i := range at.Machines {
			at.Machines[i].Away = ""
		}
		p.machineIs("pool", at)
		p.until("wide", berth.Completed)
	})
}
