package control_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// plantDoc writes a document past the front door.
func (p *fixture) plantDoc(kind, name, version, body, own string) {
	p.t.Helper()
	err := p.db.Update(p.t.Context(), func(tx *store.Tx) error {
		d := &store.Doc{Workspace: space.Key(), Kind: kind, Name: name, Version: version, CreatedBy: "ann", Body: json.RawMessage(body)}
		if own != "" {
			d.Own = json.RawMessage(own)
		}
		if kind == "jobs" {
			d.Status = string(berth.NotStarted)
			tx.Emit(berth.Event{Workspace: space.Key(), Subject: "jobs/" + name, Type: berth.EventJobCreated})
		} else {
			tx.Emit(berth.Event{Workspace: space.Key(), Subject: kind + "/" + name, Type: berth.EventResourcePut})
		}
		return tx.Insert(d)
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// TestOneBadDocument: a document that cannot be read is nobody's problem but its own, also for a
// server that starts.
func TestOneBadDocument(t *testing.T) {
	size := `"properties":{"vmSize":"Standard_DS3_v2"}`
	for i, body := range []string{
		`{"tags":{"n":5},"properties":{"computeType":"AmlCompute",` + size + `}}`,
		`{"tags":{"berth.jobs_per_node":{}},"properties":{"computeType":"AmlCompute",` + size + `}}`,
		`{"tags":["a"],"properties":{"computeType":"AmlCompute",` + size + `}}`,
		`{"Properties":{"computeType":7},"properties":{"computeType":"AmlCompute",` + size + `}}`,
		`{"properties":{"computeType":"AmlCompute","properties":{"vmSize":"Standard_DS3_v2","scaleSettings":{"nodeIdleTimeBeforeScaleDown":"soon"}}}}`,
	} {
		t.Run(fmt.Sprint("compute", i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := build(t, 1)
				p.plantDoc("computes", "odd", "", body, "")
				p.submit("a", "true")
				p.until("a", berth.Completed)
				p.stop()
				p.run()
				p.submit("b", "true")
				p.until("b", berth.Completed)
			})
		})
	}
	for i, body := range []string{
		`{"properties":{"jobType":"Command","command":"true"},"propertie\u017f":5}`,
		`{"properties":{"jobType":"Bogus"}}`,
		`{"properties":5}`,
	} {
		t.Run(fmt.Sprint("job", i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := build(t, 1)
				p.plantDoc("jobs", "odd", "", body, `{"compute":"local"}`)
				p.submit("a", "true")
				p.until("a", berth.Completed)
				p.stop()
				p.run()
				p.submit("b", "true")
				p.until("b", berth.Completed)
			})
		})
	}
}

// TestBadReferences: what a job names and cannot be read ends that job, and holds up no other.
func TestBadReferences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.plantDoc("codes/versions", "c", "1", `{"properties":{"codeUri":5}}`, "")
		p.plantDoc("environments/versions", "e", "1", `{"properties":{"image":{"a":1}}}`, "")
		p.plantDoc("data/versions", "d", "1", `{"properties":{"dataUri":[]}}`, "")
		for name, more := range map[string]map[string]any{
			"code":  {"codeId": "azureml:c:1"},
			"env":   {"environmentId": "azureml:e:1"},
			"data":  {"inputs": map[string]any{"x": map[string]any{"jobInputType": "uri_file", "uri": "azureml:d:1"}}},
			"extra": {"properties": map[string]any{"a": map[string]any{"b": 1}}, "environmentId": "azureml:e:1"},
		} {
			props := map[string]any{"jobType": "Command", "command": "true"}
			for k, v := range more {
				props[k] = v
			}
			body, err := json.Marshal(map[string]any{"properties": props})
			if err != nil {
				t.Fatal(err)
			}
			p.plantDoc("jobs", name, "", string(body), `{"compute":"local"}`)
			if st := p.until(name, berth.Failed); st.Reason == "" || strings.Contains(st.Reason, "internal") {
				t.Errorf("%s: %q", name, st.Reason)
			}
		}
		p.submit("good", "true")
		p.until("good", berth.Completed)
	})
}

// TestFoldersOfTheServer: a user's code and build context that an allowed folder of the server
// holds keep to that folder.
func TestFoldersOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		synctest.Wait()
		p.stop()
		p.options.Locator.Allow.Paths = []string{"/open"}
		p.run()
		p.plantDoc("codes/versions", "c", "1", `{"properties":{"codeUri":"file:///open/code"}}`, "")
		p.plantDoc("environments/versions", "e", "1", `{"properties":{"build":{"contextUri":"file:///open/context"}}}`, "")
		p.plantDoc("jobs", "j", "", `{"properties":{"jobType":"Command","command":"forever","codeId":"azureml:c:1","environmentId":"azureml:e:1"}}`, `{"compute":"local"}`)
		p.until("j", berth.Running)
		l, _ := p.driver.Launch(p.task("j"))
		if l.Code != "file:///open/code" || l.CodeBelow != "/open" {
			t.Errorf("the code is at %s, below %q", l.Code, l.CodeBelow)
		}
		if e := l.Environment; e.Build != "file:///open/context" || e.Below != "/open" {
			t.Errorf("the build context is at %s, below %q", e.Build, e.Below)
		}
	})
}

// TestNoPorts: a distributed job for which there are no ports holds up nobody.
func TestNoPorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 0, 2, nil)
		body := `{"properties":{"jobType":"Command","command":"true","computeId":"cpu","distribution":{"distributionType":"PyTorch","processCountPerInstance":100000}}}`
		p.plantDoc("jobs", "huge", "", body, `{"compute":"cpu"}`)
		time.Sleep(10 * time.Second)
		p.on("cpu", "small", "true", nil)
		p.until("small", berth.Completed)
		if s, st := p.job("huge"); !strings.Contains(st.Reason, "ports") {
			t.Errorf("%s: %q", s, st.Reason)
		}
	})
}

// TestPortsRunOut: when all ports for distributed jobs are in use the next one waits, says so, and
// begins when there are some again.
func TestPortsRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 0, 200, nil)
		for i := range 190 { // more than there are blocks of ports
			p.on("cpu", fmt.Sprint("j", i), "forever", map[string]any{"distribution": map[string]any{"distributionType": "PyTorch"}})
		}
		var waits []string
		p.settle("some run, the others wait for ports", func() bool {
			waits = nil
			for i := range 190 {
				switch s, st := p.job(fmt.Sprint("j", i)); {
				case strings.Contains(st.Reason, "no ports are free"):
					waits = append(waits, fmt.Sprint("j", i))
				case s != berth.Running:
					return false
				}
			}
			return len(waits) > 0
		})
		p.submit("here", "true")
		p.until("here", berth.Completed)
		p.do("POST", p.ws+"/jobs/j0/cancel", nil)
		p.settle("one of those that wait begins", func() bool {
			for _, name := range waits {
				if s, _ := p.job(name); s == berth.Running {
					return true
				}
			}
			return false
		})
	})
}

// TestLiars: a task that says it is over is made to be, and costs what it took, not what it says.
func TestLiars(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 0, 1, nil)
		p.on("cpu", "j", "forever", nil)
		p.until("j", berth.Running)
		id := p.tasks("j")[0].ID
		l, _ := p.cluster.Launch(id)
		began := time.Now()
		p.do("POST", "/runner/v1/reports", []berth.Report{{
			Task: id, Token: l.Home.Token, Seq: 100, At: began, State: berth.TaskDone, Exit: &berth.Exit{},
			Times: berth.Waterfall{Ended: began.AddDate(70, 0, 0)},
		}})
		p.until("j", berth.Completed)
		p.settle("nothing runs", func() bool { return p.cluster.Running() == 0 })
		if d := time.Since(began); d > 30*time.Second {
			t.Errorf("it ran on for %v", d)
		}
		time.Sleep(time.Second) // for its last report
		for _, m := range p.meters() {
			if m.Job == "j" && m.To.After(time.Now()) {
				t.Errorf("it is metered until %v", m.To)
			}
		}
	})
}
