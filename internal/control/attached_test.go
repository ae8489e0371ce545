package control_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/fake"
	"github.com/berthml/berth/internal/store"
)

// machineIs writes what the gate does when a machine connects or goes.
func (p *fixture) machineIs(name string, a berth.AttachedState) {
	p.t.Helper()
	err := p.db.Update(p.t.Context(), func(tx *store.Tx) error {
		d, err := tx.Get(space.Key(), "computes", name, "")
		if err != nil {
			return err
		}
		var st berth.ComputeState
		if err := json.Unmarshal(d.Own, &st); err != nil {
			return err
		}
		st.Attached = &a
		if d.Own, err = json.Marshal(st); err != nil {
			return err
		}
		tx.Emit(berth.Event{Workspace: d.Workspace, Subject: "computes/" + d.Name, Type: berth.EventCompute})
		return tx.Save(d)
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// TestAttached: jobs wait for a machine that is away and say so, run on their own target when it is
// there, as many at once as it has slots, are not given up while it is away, and what it cannot do
// is refused.
func TestAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 2)
		synctest.Wait()
		p.stop()
		far := fake.New(fake.Options{Report: func(rs []berth.Report) { p.reports.Go(func() { p.report(rs) }) }})
		defer far.Close()
		p.far = far
		p.options.Targets = fake.Registry(map[string]driver.Driver{"local": p.driver, "amlcompute": p.cluster, "agent": far}, p.options.Log)
		p.run()
		insert(t, p, "laptop")
		p.on("laptop", "a", "forever", nil)
		p.on("laptop", "b", "forever", nil)
		p.on("laptop", "c", "true", nil)
		synctest.Wait()
		if _, st := p.job("a"); !strings.Contains(st.Reason, "has not joined yet") {
			t.Errorf("a waits for %q", st.Reason)
		}
		at := berth.AttachedState{TokenHash: "x", Machine: "m", Host: "h", Connected: true, Session: "1", Since: time.Now(), Slots: 2}
		p.machineIs("laptop", at)
		p.until("a", berth.Running)
		p.until("b", berth.Running)
		if s, st := p.job("c"); s != berth.Queued || !strings.Contains(st.Reason, "laptop") {
			t.Errorf("c is %s: %q", s, st.Reason)
		}
		if n := len(p.driver.Starts()) + len(p.cluster.Starts()); n > 0 {
			t.Errorf("%d tasks were started elsewhere", n)
		}
		l, ok := far.Launch(p.tasks("a")[0].ID)
		if !ok || l.Node != "" {
			t.Errorf("%v, %+v", ok, l)
		}
		at.Connected, at.Why = false, "gone"
		p.machineIs("laptop", at)
		far.Break("observe", berth.Errorf(berth.Unavailable, "not connected"))
		time.Sleep(time.Hour)
		if s, _ := p.job("a"); s != berth.Running {
			t.Errorf("a on a machine that is away is %s", s)
		}
		far.Break("observe", nil)
		far.Finish(p.tasks("a")[0].ID, berth.Exit{})
		at.Connected, at.Session = true, "2"
		p.machineIs("laptop", at)
		p.until("a", berth.Completed)
		p.until("c", berth.Completed)
		code, b := p.do(http.MethodDelete, p.ws+"/computes/laptop?drain=true", nil)
		if code != http.StatusAccepted {
			t.Fatalf("%d %s", code, b)
		}
		time.Sleep(time.Minute)
		if s, _ := p.job("b"); s != berth.Running {
			t.Errorf("b on a machine that is being detached is %s", s)
		}
		at.Connected, at.Why = false, "gone for good"
		p.machineIs("laptop", at)
		p.until("b", berth.Failed)
		time.Sleep(time.Minute)
		if code, _ := p.do(http.MethodGet, p.ws+"/computes/laptop", nil); code != http.StatusNotFound {
			t.Errorf("the compute is still there: %d", code)
		}
	})
}

// insert writes an attached compute as the front door does.
func insert(t *testing.T, p *fixture, name string) {
	t.Helper()
	err := p.db.Update(t.Context(), func(tx *store.Tx) error {
		tx.Emit(berth.Event{Workspace: space.Key(), Subject: "computes/" + name, Type: berth.EventResourcePut})
		return tx.Insert(&store.Doc{
			Workspace: space.Key(), Kind: "computes", Name: name, CreatedBy: "ann", Own: []byte(`{}`),
			Body: []byte(`{"properties":{"computeType":"VirtualMachine","properties":{"connection":"agent"}}}`),
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestQueuedByTheTarget: why a target has a task wait in its own queue is the job's reason.
func TestQueuedByTheTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 2)
		synctest.Wait()
		p.stop()
		far := fake.New(fake.Options{
			Report:  func(rs []berth.Report) { p.reports.Go(func() { p.report(rs) }) },
			Outcome: func(berth.Launch) fake.Outcome { return fake.Outcome{Queue: time.Minute} },
		})
		defer far.Close()
		p.far = far
		p.options.Targets = fake.Registry(map[string]driver.Driver{"local": p.driver, "amlcompute": p.cluster, "agent": far}, p.options.Log)
		p.run()
		insert(t, p, "site")
		p.machineIs("site", berth.AttachedState{TokenHash: "x", Machine: "m", Host: "h", Connected: true, Session: "1", Since: time.Now(), Slots: 2})
		p.on("site", "a", "true", nil)
		time.Sleep(30 * time.Second)
		if s, _ := p.job("a"); s != berth.Preparing {
			t.Errorf("a is %s", s)
		}
		if why := p.tasks("a")[0].Why; why != "the target holds it in its queue" {
			t.Errorf("it waits because %q", why)
		}
		p.until("a", berth.Completed)
	})
}
