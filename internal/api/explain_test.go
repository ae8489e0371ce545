package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

func TestExplainCompute(t *testing.T) {
	x := open(t)
	x.cluster("cpu", 3)
	if e := decode[berth.ComputeExplanation](x.do("GET", x.ws+"/computes/cpu/explain", nil).want(http.StatusOK)); e.Reason != "no job waits, and it has no nodes" {
		t.Errorf("reason: %q", e.Reason)
	}
	n1 := x.paid("n1", "cpu", "ann", time.Hour)
	x.paid("n2", "cpu", "bob", 30*time.Minute)
	x.do("PUT", x.ws+"/jobs/b", job("cpu", "")).want(http.StatusCreated)
	x.onNode("b", "cpu", "n2", "root", time.Minute)
	e := decode[berth.ComputeExplanation](x.do("GET", x.ws+"/computes/cpu/explain", nil).want(http.StatusOK))
	if e.Type != "cluster" || e.Size != "Standard_DS3_v2" || e.PerHour != 4 || e.Currency != "USD" || len(e.Nodes) != 2 || e.Max != 3 {
		t.Fatalf("%+v", e)
	}
	if d := cmp.Diff([]string{"b"}, e.Nodes[1].Jobs); d != "" || !e.Nodes[0].Goes.Equal(n1.IdleSince.Add(2*time.Minute)) || !e.Nodes[1].Goes.IsZero() {
		t.Errorf("%s %+v", d, e.Nodes)
	}
	if len(e.History) == 0 || e.History[0].Type != berth.EventResourcePut {
		t.Errorf("%+v", e.History)
	}
	if e.Reason != "no job waits: 1 node runs jobs, 1 is idle" { // not why it grew an hour ago
		t.Errorf("reason: %q", e.Reason)
	}
	if e := decode[berth.ComputeExplanation](x.do("GET", x.ws+"/computes/local/explain", nil).want(http.StatusOK)); e.Type != "local" || len(e.Nodes) != 1 {
		t.Errorf("%+v", e)
	}
	x.do("GET", x.ws+"/computes/none/explain", nil).want(http.StatusNotFound)
}

// TestExplainLongRun: the history of a job has its beginning and its end, however often it was
// measured.
func TestExplainLongRun(t *testing.T) {
	x := open(t)
	x.do("PUT", x.ws+"/jobs/long", job("", "")).want(http.StatusCreated)
	err := x.db.Update(t.Context(), func(tx *store.Tx) error {
		for range 3000 {
			tx.Emit(berth.Event{Workspace: workspace.Key(), Subject: "jobs/long", Type: berth.EventTaskUsage})
		}
		tx.Emit(berth.Event{Workspace: workspace.Key(), Subject: "jobs/long", Type: berth.EventJobStatus, Reason: "the command ended with exit code 0"})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range decode[berth.Explanation](x.do("GET", x.ws+"/jobs/long/explain", nil).want(http.StatusOK)).History {
		got = append(got, e.Type)
	}
	if d := cmp.Diff([]string{berth.EventJobCreated, berth.EventJobStatus}, got); d != "" {
		t.Error(d)
	}
}

// A job that waits is explained by what is now, not by what was when the scheduler looked last.
func TestExplainWaiting(t *testing.T) {
	x := open(t)
	x.cluster("cpu", 1)
	x.paid("n1", "cpu", "ann", time.Hour)
	wait := func(name string, more ...any) {
		x.do("PUT", x.ws+"/jobs/"+name, job("cpu", "", more...)).want(http.StatusCreated)
		err := x.db.Update(t.Context(), func(tx *store.Tx) error {
			d, err := tx.Get(workspace.Key(), "jobs", name, "")
			if err != nil {
				return err
			}
			d.Status = string(berth.Queued)
			d.Own, err = json.Marshal(berth.JobState{Compute: "cpu", Reason: "something old"})
			if err != nil {
				return err
			}
			if err := tx.Save(d); err != nil {
				return err
			}
			count := max(1, len(more)) // as many nodes as it names
			for rank := range count {
				id := name + ".1"
				if rank > 0 {
					id += fmt.Sprint("-", rank)
				}
				err = errors.Join(err, tx.InsertTask(&berth.Task{
					ID: berth.TaskID(id), Workspace: workspace.Key(), Job: name, Attempt: 1, Compute: "cpu", User: "root", State: berth.TaskWaiting, Why: "something old",
					Rank: rank, Count: count,
				}))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	x.do("PUT", x.ws+"/jobs/b", job("cpu", "")).want(http.StatusCreated)
	x.onNode("b", "cpu", "n1", "root", time.Minute)
	wait("w1")
	wait("w2")
	e := decode[berth.Explanation](x.do("GET", x.ws+"/jobs/w2/explain", nil).want(http.StatusOK))
	if e.Reason != "the node of cpu is in use" || e.Ahead != 1 || len(e.Running) != 1 || len(e.InTheWay) != 2 || e.InTheWay[1].Name != "w1" {
		t.Errorf("%+v", e)
	}
	if c := decode[berth.ComputeExplanation](x.do("GET", x.ws+"/computes/cpu/explain", nil).want(http.StatusOK)); !strings.Contains(c.Advice[0], "--max-instances 2") {
		t.Errorf("%q", c.Advice)
	}
	// One that came when there could be more nodes says what to do about it.
	x.do("PATCH", x.ws+"/computes/cpu", scale(2)).want(http.StatusOK)
	wait("gang", "resources", map[string]any{"instanceCount": 2})
	x.do("PATCH", x.ws+"/computes/cpu", scale(1)).want(http.StatusOK)
	e = decode[berth.Explanation](x.do("GET", x.ws+"/jobs/gang/explain", nil).want(http.StatusOK))
	raise := "berth compute update -n cpu --max-instances 2"
	if e.Reason != "needs 2 nodes, and cpu can have at most 1" || e.Advice[0] != raise {
		t.Errorf("%q %q", e.Reason, e.Advice)
	}
	if c := decode[berth.ComputeExplanation](x.do("GET", x.ws+"/computes/cpu/explain", nil).want(http.StatusOK)); !strings.Contains(c.Advice[0], raise) || !strings.Contains(c.Advice[0], "gang") {
		t.Errorf("%q", c.Advice)
	}
}

// scale is a change of how many nodes a cluster may have.
func scale(most int) map[string]any {
	return map[string]any{"properties": map[string]any{"properties": map[string]any{"scaleSettings": map[string]any{"maxNodeCount": most, "minNodeCount": 0}}}}
}

func TestAdvise(t *testing.T) {
	x := open(t)
	a := decode[berth.Advice](x.do("GET", x.ws+"/advise?case=production&ramGB=30", nil).want(http.StatusOK))
	if len(a.Targets) != 1 || a.Targets[0].Target != "cluster" || a.Needs.MemoryGB != 45 || len(a.Targets[0].Sizes) == 0 || a.Targets[0].Sizes[0].MemoryGB < 45 {
		t.Errorf("%+v", a)
	}
	x.do("GET", x.ws+"/advise?case=lunch", nil).want(http.StatusBadRequest)
	x.do("GET", x.ws+"/advise?ramGB=much", nil).want(http.StatusBadRequest)
	x.do("GET", x.ws+"/advise?job=none", nil).want(http.StatusNotFound)
	x.cluster("cpu", 1)
	x.do("PUT", x.ws+"/jobs/b", job("cpu", "")).want(http.StatusCreated)
	x.do("GET", x.ws+"/advise?job=b", nil).want(http.StatusBadRequest)
	n := x.paid("n1", "cpu", "ann", time.Hour)
	err := x.db.Update(t.Context(), func(tx *store.Tx) error {
		return tx.InsertTask(&berth.Task{
			ID: "b.1", Workspace: workspace.Key(), Job: "b", Attempt: 1, Compute: "cpu", Node: n.Name, State: berth.TaskRunning,
			Times: berth.Waterfall{Placed: time.Now().Add(-time.Hour)}, Usage: berth.Usage{MemoryBytes: 2 << 30, CPUPercent: 80},
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	a = decode[berth.Advice](x.do("GET", x.ws+"/advise?job=b", nil).want(http.StatusOK))
	if len(a.Measured) != 1 || a.Measured[0].PeakGB != 2 || a.Measured[0].AskedGB != 14 || a.Measured[0].Verdict != "too large" || a.Measured[0].Better == nil {
		t.Errorf("%+v", a.Measured)
	}
}

// TestOutOfMemoryAdvice: a limit that the job itself has can be raised; a larger machine is for
// jobs that used all of theirs.
func TestOutOfMemoryAdvice(t *testing.T) {
	x := open(t)
	for name, memory := range map[string]string{"own": "200m", "machine": ""} {
		p := map[string]any{}
		if memory != "" {
			p["berth.memory"] = memory
		}
		x.do("PUT", x.ws+"/jobs/"+name, props("jobType", "Command", "command", "true", "computeId", x.ws+"/computes/local", "properties", p)).want(201)
		err := x.db.Update(t.Context(), func(tx *store.Tx) error {
			d, err := tx.Get(workspace.Key(), "jobs", name, "")
			if err != nil {
				return err
			}
			st, err := store.State[berth.JobState](d)
			if err != nil {
				return err
			}
			d.Status, st.Exit = string(berth.Failed), &berth.Exit{Code: 137, OOM: true, Reason: "it needed more memory"}
			st.Times.Started = time.Now()
			return errors.Join(store.SetState(d, st), tx.Save(d))
		})
		if err != nil {
			t.Fatal(err)
		}
		said := string(x.do("GET", x.ws+"/jobs/"+name+"/explain", nil).want(200).raw)
		if own := memory != ""; strings.Contains(said, "raise --memory") != own || strings.Contains(said, "larger target") == own || strings.Contains(said, "berth advise") {
			t.Errorf("%s: %s", name, said)
		}
	}
}
