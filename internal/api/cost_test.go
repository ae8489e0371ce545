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
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/store"
)

// put writes a document as the loops would.
func (x *house) keep(kind, name, parent string, own any) {
	x.t.Helper()
	raw, err := json.Marshal(own)
	if err != nil {
		x.t.Fatal(err)
	}
	err = x.db.Update(x.t.Context(), func(tx *store.Tx) error {
		return tx.Insert(&store.Doc{Workspace: workspace.Key(), Kind: kind, Name: name, Parent: parent, Body: json.RawMessage("{}"), Own: raw})
	})
	if err != nil {
		x.t.Fatal(err)
	}
}

// cluster makes a cluster of Standard_DS3_v2 nodes.
func (x *house) cluster(name string, most int) {
	x.t.Helper()
	x.do("PUT", x.ws+"/computes/"+name, map[string]any{"location": "here", "properties": map[string]any{
		"computeType": "AmlCompute", "properties": map[string]any{
			"vmSize": "Standard_DS3_v2", "scaleSettings": map[string]any{"minNodeCount": 0, "maxNodeCount": most, "nodeIdleTimeBeforeScaleDown": "PT120S"},
		},
	}}).want(http.StatusCreated)
}

// node gives a cluster a node that was asked for some time ago.
func (x *house) paid(name, compute, user string, age time.Duration) berth.Node {
	now := time.Now()
	n := berth.Node{
		Name: name, Workspace: workspace.Key(), Compute: compute, Size: "Standard_DS3_v2", Family: "standardDSv2Family", State: berth.NodeIdle, VCPUs: 4,
		Slots: 1, Price: 2, Priced: true, Currency: "USD", Created: now.Add(-age), Ready: now.Add(-age), IdleSince: now.Add(-time.Minute), User: user,
	}
	x.keep("nodes", name, strings.ToLower(compute), n)
	return n
}

// onNode puts a job's only task on a node, as control does.
func (x *house) onNode(job, compute, node, user string, since time.Duration) {
	x.t.Helper()
	err := x.db.Update(x.t.Context(), func(tx *store.Tx) error {
		d, err := tx.Get(workspace.Key(), "jobs", job, "")
		if err != nil {
			return err
		}
		d.Status = string(berth.Running)
		if err := tx.Save(d); err != nil {
			return err
		}
		return tx.InsertTask(&berth.Task{
			ID: berth.TaskID(job + ".1"), Workspace: workspace.Key(), Job: job, Attempt: 1, Compute: compute, Node: node, User: user,
			State: berth.TaskRunning, Times: berth.Waterfall{Placed: time.Now().Add(-since)},
		})
	})
	if err != nil {
		x.t.Fatal(err)
	}
}

func job(compute, timeout string, more ...any) map[string]any {
	props := map[string]any{"jobType": "Command", "command": "python train.py", "experimentName": "e"}
	if compute != "" {
		props["computeId"] = workspace.ResourceID("computes", compute)
	}
	if timeout != "" {
		props["limits"] = map[string]any{"timeout": timeout}
	}
	for i := 0; i+1 < len(more); i += 2 {
		props[more[i].(string)] = more[i+1]
	}
	return map[string]any{"properties": props}
}

func decode[T any](a answer) (v T) {
	a.t.Helper()
	if err := json.Unmarshal(a.raw, &v); err != nil {
		a.t.Fatalf("%v in %s", err, a.raw)
	}
	return v
}

func TestSpending(t *testing.T) {
	x := open(t)
	x.cluster("cpu", 4)
	now := time.Now()
	ended := func(node, job, user string, from, to time.Duration) {
		x.keep("meters", node+job, "cpu", berth.Meter{
			Compute: "cpu", Node: node, Size: "Standard_DS3_v2", Rate: 2, Priced: true, Currency: "USD", Job: job, User: user, From: now.Add(-from), To: now.Add(-to),
		})
	}
	ended("gone", "a", "ann", 5*time.Hour, 4*time.Hour)
	ended("gone", "", "bob", 6*time.Hour, 3*time.Hour)
	x.paid("n1", "cpu", "ann", 2*time.Hour)
	x.do("PUT", x.ws+"/jobs/b", job("cpu", "")).want(http.StatusCreated)
	x.onNode("b", "cpu", "n1", "root", time.Hour)
	s := decode[berth.Spending](x.do("GET", x.ws+"/cost?by=user,job&since="+now.Add(-24*time.Hour).UTC().Format(time.RFC3339), nil).want(http.StatusOK))
	got := map[string]string{}
	for _, g := range s.Groups {
		got[g.User+"/"+g.Job] = fmt.Sprintf("%.1f h %.1f, idle %.1f h %.1f", g.NodeHours, g.Cost, g.Idle.NodeHours, g.Idle.Cost)
	}
	want := map[string]string{
		"ann/a": "1.0 h 2.0, idle 0.0 h 0.0", "bob/": "0.0 h 0.0, idle 2.0 h 4.0", "root/b": "1.0 h 2.0, idle 0.0 h 0.0", "ann/": "0.0 h 0.0, idle 1.0 h 2.0",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if len(s.Totals) != 1 || fmt.Sprintf("%.1f %.1f", s.Totals[0].Cost, s.Totals[0].Idle.Cost) != "4.0 6.0" {
		t.Errorf("%+v", s.Totals)
	}
	// A window that begins in the middle has what lies in it.
	s = decode[berth.Spending](x.do("GET", x.ws+"/cost?since="+now.Add(-270*time.Minute).UTC().Format(time.RFC3339Nano)+"&until="+now.Add(-150*time.Minute).UTC().Format(time.RFC3339Nano), nil).want(http.StatusOK))
	if len(s.Totals) != 1 || fmt.Sprintf("%.2f %.2f", s.Totals[0].Cost, s.Totals[0].Idle.Cost) != "1.00 2.00" {
		t.Errorf("%+v", s.Totals)
	}
	x.do("GET", x.ws+"/cost?by=colour", nil).want(http.StatusBadRequest)
	x.do("GET", x.ws+"/cost?since=yesterday", nil).want(http.StatusBadRequest)
	e := decode[berth.Explanation](x.do("GET", x.ws+"/jobs/b/explain", nil).want(http.StatusOK))
	if len(e.Cost) != 1 || fmt.Sprintf("%.1f %s", e.Cost[0].Cost, e.Cost[0].Currency) != "2.0 USD" {
		t.Errorf("%+v", e.Cost)
	}
}

func TestBudgets(t *testing.T) {
	x := open(t)
	x.cluster("cpu", 4)
	x.do("PUT", "/berth/v1/sizes/Standard_DS3_v2", map[string]any{"price": 2, "currency": "USD"})
	ann, bob := x.token("ann", auth.User), x.token("bob", auth.User)
	x.as(ann, "PUT", x.ws+"/budgets/workspace", map[string]any{"amount": 10}).want(http.StatusForbidden)
	x.do("PUT", x.ws+"/budgets/nobody", map[string]any{"amount": 10}).want(http.StatusBadRequest)
	x.do("PUT", x.ws+"/budgets/workspace", map[string]any{"amount": -10}).want(http.StatusBadRequest)
	x.do("PUT", x.ws+"/budgets/workspace", map[string]any{"amount": 10}).want(http.StatusCreated)
	x.do("PUT", x.ws+"/budgets/user:bob", map[string]any{"amount": 3, "period": "total"}).want(http.StatusCreated)
	// Ann reserves 8 for four hours; what is left is less than she asks for next, and Bob's own has
	// too little for two hours.
	x.as(ann, "PUT", x.ws+"/jobs/a1", job("cpu", "PT4H")).want(http.StatusCreated)
	no := x.as(ann, "PUT", x.ws+"/jobs/a2", job("cpu", "PT2H")).want(http.StatusForbidden)
	if no.at("error.code") != "BudgetExceeded" || !strings.Contains(string(no.raw), "has 2.00 USD left, and the job reserves 4.00 USD (1 node of Standard_DS3_v2 at 2.00 USD an hour for 2h: its limits.timeout); other jobs hold 8.00 USD until they end") {
		t.Errorf("%s", no.raw)
	}
	if no := x.as(bob, "PUT", x.ws+"/jobs/b1", job("cpu", "PT2H")).want(http.StatusForbidden); !strings.Contains(string(no.raw), "user bob") && !strings.Contains(string(no.raw), "workspace's budget") {
		t.Errorf("%s", no.raw)
	}
	x.as(bob, "PUT", x.ws+"/jobs/b2", job("cpu", "PT1H")).want(http.StatusCreated)
	x.as(ann, "PUT", x.ws+"/jobs/here", job("", "PT99H")).want(http.StatusCreated) // this machine costs nothing
	all := decode[struct{ Value []berth.BudgetStatus }](x.do("GET", x.ws+"/budgets", nil).want(http.StatusOK)).Value
	if len(all) != 2 || all[0].Name != "workspace" || all[0].Reserved != 10 || all[0].Left != 0 || all[1].User != "bob" || all[1].Reserved != 2 || all[1].Left != 1 {
		t.Errorf("%+v", all)
	}
	p := decode[berth.Plan](x.as(ann, "POST", x.ws+"/jobs/a3/plan", job("cpu", "PT2H")).want(http.StatusOK))
	if p.Verdict != berth.PlanWait || len(p.Limits) == 0 || p.Limits[0].Kind != berth.LimitBudget {
		t.Errorf("%+v", p)
	}
	// A job that has ended holds nothing any more.
	err := x.db.Update(t.Context(), func(tx *store.Tx) error {
		d, err := tx.Get(workspace.Key(), "jobs", "a1", "")
		if err != nil {
			return err
		}
		d.Status = string(berth.Completed)
		if err := cost.Release(tx, d.Workspace, d.CreatedBy, berth.JobState{Reserved: 8, ReservedIn: "USD"}); err != nil { // as control does
			return err
		}
		return tx.Save(d)
	})
	if err != nil {
		t.Fatal(err)
	}
	x.as(ann, "PUT", x.ws+"/jobs/a2", job("cpu", "PT2H")).want(http.StatusCreated)
	x.do("DELETE", x.ws+"/budgets/workspace", nil).want(http.StatusNoContent)
	x.do("DELETE", x.ws+"/budgets/workspace", nil).want(http.StatusNotFound)
	x.as(ann, "PUT", x.ws+"/jobs/a4", job("cpu", "PT200H")).want(http.StatusCreated)
}

// What was spent before a budget was set counts, whoever reads it and how often.
func TestBudgetCountsThePast(t *testing.T) {
	x := open(t)
	x.cluster("cpu", 4)
	now := time.Now()
	meter := func(name string, hours float64) {
		x.keep("meters", name, "cpu", berth.Meter{
			Compute: "cpu", Node: name, Size: "Standard_DS3_v2", Rate: 1, Priced: true, Currency: "USD", User: "ann", From: now.Add(-time.Duration(hours * float64(time.Hour))), To: now,
		})
	}
	spent := func() float64 {
		b := decode[berth.BudgetStatus](x.do("GET", x.ws+"/budgets/workspace", nil).want(http.StatusOK))
		return float64(int(b.Spent*1000+0.5)) / 1000
	}
	// The month may have begun within the last hours: a weekly or monthly budget would count less.
	x.do("PUT", x.ws+"/budgets/workspace", map[string]any{"amount": 100, "period": "total", "currency": "USD"}).want(http.StatusCreated)
	meter("before", 5) // began before the budget was made: only what comes after counts
	if got := spent(); got > 0.01 {
		t.Errorf("%v spent of a budget that has just begun", got)
	}
	x.paid("n", "cpu", "ann", 3*time.Hour)
	if got := spent(); got > 0.01 {
		t.Errorf("%v spent of a budget that has just begun", got)
	}
	x.do("PUT", x.ws+"/budgets/workspace", map[string]any{"amount": 100, "period": "month", "currency": "USD"}).want(http.StatusOK)
	month := time.Date(now.UTC().Year(), now.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
	since := func(hours float64) float64 { return min(hours, now.Sub(month).Hours()) }
	if got, want := spent(), since(5)+2*since(3); got < want-0.01 || got > want+0.01 {
		t.Errorf("%v spent, want %v", got, want)
	}
}

func TestPlan(t *testing.T) {
	x := open(t)
	x.cluster("cpu", 1)
	ann := x.token("ann", auth.User)
	plan := func(body map[string]any) berth.Plan {
		t.Helper()
		return decode[berth.Plan](x.as(ann, "POST", x.ws+"/jobs/new/plan", body).want(http.StatusOK))
	}
	kinds := func(p berth.Plan) (out string) {
		for _, l := range p.Limits {
			out += l.Kind + " "
		}
		return out
	}
	if p := plan(job("", "")); p.Verdict != berth.PlanNow || p.Compute != "local" || !p.Cost.Known || *p.Cost.Expected != 0 {
		t.Errorf("%+v", p)
	}
	if p := plan(job("cpu", "PT2H", "codeId", "local:/home/ann/src", "environmentId", "local:inline")); p.Verdict != berth.PlanSoon || p.Boot != 1 || p.Size != "Standard_DS3_v2" || p.Duration.Basis != "limit" {
		t.Errorf("%+v", p)
	}
	if p := plan(job("cpu", "", "resources", map[string]any{"instanceCount": 2})); p.Verdict != berth.PlanNever || kinds(p) != "gang " {
		t.Errorf("%+v", p)
	}
	p := plan(job("", "", "resources", map[string]any{"instanceType": "Standard_DS3_v2"}))
	if p.Verdict != berth.PlanSoon || p.Type != "serverless" || !p.New {
		t.Errorf("%+v", p)
	}
	x.do("GET", x.ws+"/computes/"+p.Compute, nil).want(http.StatusNotFound)
	if p := plan(job("", "", "resources", map[string]any{"instanceType": "Standard_NC6s_v3"})); p.Verdict != berth.PlanNever || kinds(p) != "approval machine " { // it has no GPUs either
		t.Errorf("%+v", p)
	}
	x.do("GET", x.ws+"/jobs/new", nil).want(http.StatusNotFound)
	// Somebody is on the only node: the plan names them, and the history of runs like theirs says
	// until when.
	x.paid("n1", "cpu", "bob", time.Hour)
	for i := range 3 {
		name := fmt.Sprint("old", i)
		x.do("PUT", x.ws+"/jobs/"+name, job("", "")).want(http.StatusCreated)
		err := x.db.Update(t.Context(), func(tx *store.Tx) error {
			d, err := tx.Get(workspace.Key(), "jobs", name, "")
			if err != nil {
				return err
			}
			end := time.Now()
			d.Status = string(berth.Completed)
			d.Own, err = json.Marshal(berth.JobState{Compute: "local", Times: berth.Waterfall{Placed: end.Add(-time.Duration(i+1) * 20 * time.Minute), Ended: end}})
			if err != nil {
				return err
			}
			return tx.Save(d)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	x.do("PUT", x.ws+"/jobs/now", job("cpu", "")).want(http.StatusCreated)
	x.onNode("now", "cpu", "n1", "root", 10*time.Minute)
	p = plan(job("cpu", ""))
	if p.Verdict != berth.PlanWait || kinds(p) != "max_instances " || len(p.Start.Jobs) != 1 || p.Start.Jobs[0].Name != "now" || p.Duration.Runs != 3 || p.Duration.Of != "command" {
		t.Errorf("%+v", p)
	}
	if in := time.Until(p.Start.At).Round(time.Minute); in != 30*time.Minute || p.Start.Basis != "history" {
		t.Errorf("it starts in %s by %s", in, p.Start.Basis)
	}
	// A limit that was lowered below what is there keeps nobody from the nodes there are.
	x.do("POST", x.ws+"/quotas", map[string]any{"size": "Standard_DS3_v2", "vCPUs": 0}).want(http.StatusOK)
	if p := plan(job("cpu", "")); p.Verdict != berth.PlanWait || kinds(p) != "max_instances " || p.Start.At.IsZero() {
		t.Errorf("%+v", p)
	}
	x.do("POST", x.ws+"/quotas", map[string]any{"size": "Standard_DS3_v2", "vCPUs": -1}).want(http.StatusOK)
	// A pipeline: what its steps are made of may have yet to be made.
	step := func(id, compute string, inputs map[string]any) map[string]any {
		return map[string]any{"type": "command", "componentId": id, "computeId": compute, "inputs": inputs, "limits": map[string]any{"timeout": "PT1H"}}
	}
	pipe := map[string]any{
		"properties": map[string]any{"jobType": "Pipeline", "jobs": map[string]any{
			"make": step("azureml:maker:1", "local", nil),
			"use":  step("azureml:user:7", "cpu", map[string]any{"i": map[string]any{"job_input_type": "literal", "value": "${{parent.jobs.make.outputs.o}}"}}),
		}},
		"berth": map[string]any{"resources": []any{
			map[string]any{"type": "environments", "name": "e", "version": "1", "body": map[string]any{"properties": map[string]any{"image": "x"}}},
			map[string]any{"type": "components", "name": "maker", "version": "1", "body": map[string]any{"properties": map[string]any{"componentSpec": map[string]any{
				"type": "command", "command": "make", "code": "azureml:local:/src", "environment": "azureml:e:1", "outputs": map[string]any{"o": map[string]any{"type": "uri_folder"}},
			}}}},
			map[string]any{"type": "components", "name": "user", "version": "7", "body": map[string]any{"properties": map[string]any{"componentSpec": map[string]any{
				"type": "command", "command": "use ${{inputs.i}}", "environment": "azureml:e:1", "inputs": map[string]any{"i": map[string]any{"type": "uri_folder"}},
			}}}},
		}},
	}
	p = plan(pipe)
	if p.Type != "pipeline" || p.Verdict != berth.PlanNow || len(p.Steps) != 2 || p.Steps[1].Compute != "cpu" || p.Steps[1].Job != "use" || p.Steps[1].After[0] != "make" {
		t.Errorf("%+v", p)
	}
	if p.Duration.Limit != 7200 || p.Cost.AtMost == nil || *p.Cost.AtMost != *p.Steps[1].Cost.AtMost || *p.Cost.AtMost == 0 {
		t.Errorf("%+v %+v", p.Duration, p.Cost)
	}
	delete(pipe, "berth")
	x.as(ann, "POST", x.ws+"/jobs/new/plan", pipe).want(http.StatusBadRequest).says("step make").says("maker")
	if all := x.do("GET", x.ws+"/components", nil).want(http.StatusOK); strings.Contains(string(all.raw), "maker") {
		t.Errorf("a plan made %s", all.raw)
	}

	// Whoever may read may ask; nothing that only looks like a plan is one.
	reader := x.token("looker", auth.Reader)
	x.as(reader, "POST", x.ws+"/jobs/new/plan", job("cpu", "")).want(http.StatusOK)
	x.as(reader, "POST", "/subscriptions/s/resourceGroups/jobs/deployments/plan", job("cpu", "")).want(http.StatusForbidden)
	x.as(reader, "PUT", x.ws+"/budgets/workspace", map[string]any{"amount": 1}).want(http.StatusForbidden)
	// What is wrong with the document is said as at submit.
	for _, body := range []map[string]any{job("none", ""), job("cpu", "soon"), {"properties": map[string]any{"jobType": "Command"}}, job("cpu", "", "environmentId", "azureml:none:1")} {
		x.as(ann, "POST", x.ws+"/jobs/new/plan", body).want(http.StatusBadRequest)
	}
}

// TestHistoryBehindMany: what runs took is known however many jobs of the experiment wait.
func TestHistoryBehindMany(t *testing.T) {
	x := open(t)
	end := time.Now()
	own, err := json.Marshal(berth.JobState{Compute: "local", Times: berth.Waterfall{Placed: end.Add(-time.Hour), Ended: end}})
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(job("", ""))
	if err != nil {
		t.Fatal(err)
	}
	err = x.db.Update(t.Context(), func(tx *store.Tx) error {
		d := store.Doc{Workspace: workspace.Key(), Kind: "jobs", Parent: "e", Body: body, Own: own}
		var err error
		for i := range 1000 {
			one := d
			one.Name, one.Status = fmt.Sprint("w", i), string(berth.Queued)
			if i < 3 {
				one.Status = string(berth.Completed)
			}
			err = errors.Join(err, tx.Insert(&one))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if p := decode[berth.Plan](x.do("POST", x.ws+"/jobs/new/plan", job("", "")).want(http.StatusOK)); p.Duration.Runs != 3 || p.Duration.Median != 3600 {
		t.Errorf("%+v", p.Duration)
	}
}
