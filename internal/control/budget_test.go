package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/control"
)

// watchBudgets runs the loop that minds budgets.
func (p *fixture) watchBudgets() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- control.New(p.options).Budgets(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Errorf("budgets ended: %v", err)
		}
	}
}

func (p *fixture) budget(name string, amount float64) {
	p.t.Helper()
	if code, b := p.do("PUT", p.ws+"/budgets/"+name, map[string]any{"amount": amount, "period": "total"}); code >= 300 {
		p.t.Fatalf("budget: %d %s", code, b)
	}
}

func (p *fixture) standing(name string) (b berth.BudgetStatus) {
	p.t.Helper()
	_, raw := p.do("GET", p.ws+"/budgets/"+name, nil)
	if err := json.Unmarshal(raw, &b); err != nil {
		p.t.Fatalf("%v in %s", err, raw)
	}
	return b
}

// told is the types of the events of a budget, without those of its writing.
func (p *fixture) told(name string) string {
	var out []string
	for _, e := range p.events("budgets/" + name) {
		if e.Type != berth.EventBudget {
			out = append(out, e.Type)
		}
	}
	return strings.Join(out, " ")
}

// A node costs 3.60 an hour: a budget of 5 has 4000 seconds until the warning and 5000 until it is
// used up.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 2)
		defer p.watchBudgets()()
		if code, b := p.do("PUT", "/berth/v1/sizes/Standard_DS3_v2", map[string]any{"price": 3.6, "lowPrice": 3.6}); code >= 300 {
			t.Fatalf("%d %s", code, b)
		}
		p.clusterOf("cpu", 0, 1, nil)
		p.budget("workspace", 5)
		p.budget("user:bob", 1) // nobody's here
		begin := time.Now()
		p.on("cpu", "long", "forever", nil) // reserves an hour: 3.60
		if code, b := p.put("more", "cpu", "true", nil); code != http.StatusForbidden || !strings.Contains(string(b), "BudgetExceeded") {
			t.Fatalf("a second hour: %d %s", code, b)
		}
		p.on("cpu", "next", "true", map[string]any{"limits": map[string]any{"timeout": "PT10S"}}) // behind it
		p.submit("here", "forever")
		p.until("long", berth.Running)
		if b := p.standing("workspace"); b.Reserved < 3.5 || b.Rate != 3.6 || b.State != "ok" {
			t.Errorf("%+v", b)
		}
		time.Sleep(time.Until(begin.Add(3999 * time.Second)))
		synctest.Wait()
		if got := p.told("workspace"); got != "" {
			t.Errorf("told %q before 80 %%", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := p.told("workspace"); got != berth.EventBudgetWarning {
			t.Errorf("told %q at 80 %%", got)
		}
		time.Sleep(time.Until(begin.Add(4999 * time.Second)))
		synctest.Wait()
		if s, _ := p.job("long"); s != berth.Running {
			t.Errorf("long is %s before its budget is used up", s)
		}
		st := p.until("long", berth.Canceled)
		if took := time.Since(begin); took > 5030*time.Second {
			t.Errorf("it was stopped after %s", took)
		}
		if st.Exit == nil || st.Exit.Cause != "budget" || st.Reason != "the workspace's budget of 5.00 USD is used up" {
			t.Errorf("%+v", st)
		}
		if st := p.until("next", berth.Canceled); st.Reason != "the workspace's budget of 5.00 USD is used up" {
			t.Errorf("%+v", st)
		}
		if s, _ := p.job("here"); s != berth.Running {
			t.Errorf("what costs nothing is %s", s)
		}
		if got := p.told("workspace"); got != berth.EventBudgetWarning+" "+berth.EventBudgetExhausted {
			t.Errorf("told %q", got)
		}
		if got := p.told("user:bob"); got != "" {
			t.Errorf("bob was told %q", got)
		}
		if code, b := p.put("more", "cpu", "true", map[string]any{"limits": map[string]any{"timeout": "PT1S"}}); code != http.StatusForbidden || !strings.Contains(string(b), "used up") {
			t.Errorf("a job of a second: %d %s", code, b)
		}
		p.budget("workspace", 50)
		p.on("cpu", "more", "true", nil)
		p.until("more", berth.Completed)
	})
}

// A cluster keeps nodes without work only as long as a budget pays for them.
func TestBudgetOfKeptNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 2)
		defer p.watchBudgets()()
		if code, b := p.do("PUT", "/berth/v1/sizes/Standard_DS3_v2", map[string]any{"price": 3.6, "lowPrice": 3.6}); code >= 300 {
			t.Fatalf("%d %s", code, b)
		}
		p.clusterOf("cpu", 2, 4, nil)
		has := func(n int) {
			t.Helper()
			p.settle(fmt.Sprint(n, " nodes"), func() bool { v, _ := p.compute("cpu"); return v.live() == n })
		}
		why := func(want string) {
			t.Helper()
			if v, _ := p.compute("cpu"); v.Properties.Berth.Reason != want {
				t.Errorf("the cluster says %q, not %q", v.Properties.Berth.Reason, want)
			}
		}
		has(2)
		p.budget("workspace", 5) // 2500 seconds
		time.Sleep(2480 * time.Second)
		has(2)
		time.Sleep(25 * time.Second)
		has(0)
		why("the workspace's budget of 5.00 USD is used up: 2 -> 0 nodes")
		if _, b := p.do("GET", p.ws+"/computes/cpu/explain", nil); !strings.Contains(string(b), "it has no nodes; no idle nodes are kept, because the workspace's budget of 5.00 USD is used up") {
			t.Errorf("%s", b)
		}
		p.stop()
		p.run() // somebody who did not hear of it
		time.Sleep(time.Hour)
		has(0)
		p.budget("workspace", 50)
		has(2)
		if got := p.told("workspace"); got != berth.EventBudgetWarning+" "+berth.EventBudgetExhausted+" "+berth.EventBudgetRenewed {
			t.Errorf("told %q", got)
		}
		p.budget("workspace", 1) // less than was spent
		has(0)
		if code, b := p.do("DELETE", p.ws+"/budgets/workspace", nil); code >= 300 {
			t.Fatalf("%d %s", code, b)
		}
		has(2)
		p.budget("user:ann", 1) // who made the cluster
		has(0)
		why("2 nodes idle, and the budget of user ann of 1.00 USD is used up: 2 -> 0 nodes")
	})
}

// TestBudgetEndsIdleTime: an idle node that a used-up budget pays for goes at once, however long
// its cluster lets nodes be idle and whoever made the cluster.
func TestBudgetEndsIdleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 2)
		defer p.watchBudgets()()
		if code, b := p.do("PUT", "/berth/v1/sizes/Standard_DS3_v2", map[string]any{"price": 3.6, "lowPrice": 3.6}); code >= 300 {
			t.Fatalf("%d %s", code, b)
		}
		p.user = "bob"
		p.clusterOf("cpu", 0, 1, map[string]any{"scaleSettings": map[string]any{"minNodeCount": 0, "maxNodeCount": 1, "nodeIdleTimeBeforeScaleDown": "PT2H"}})
		p.user = "ann"
		p.on("cpu", "short", "true", nil)
		p.until("short", berth.Completed)
		p.budget("user:ann", 3.6) // an hour
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if v, _ := p.compute("cpu"); v.live() != 1 {
			t.Fatalf("%d nodes before the budget is used up", v.live())
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if v, _ := p.compute("cpu"); v.live() != 0 || !strings.Contains(v.Properties.Berth.Reason, "1 node idle, and the budget of user ann of 3.60 USD is used up") {
			t.Errorf("%d nodes a minute after: %s", v.live(), v.Properties.Berth.Reason)
		}
	})
}

// A budget that begins again pays again.
func TestBudgetOfNextMonth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 2)
		defer p.watchBudgets()()
		if code, b := p.do("PUT", "/berth/v1/sizes/Standard_DS3_v2", map[string]any{"price": 3.6, "lowPrice": 3.6}); code >= 300 {
			t.Fatalf("%d %s", code, b)
		}
		p.clusterOf("cpu", 1, 1, nil)
		if code, b := p.do("PUT", p.ws+"/budgets/workspace", map[string]any{"amount": 3.6, "period": "month"}); code >= 300 {
			t.Fatalf("budget: %d %s", code, b)
		}
		live := func() int { v, _ := p.compute("cpu"); return v.live() }
		time.Sleep(59 * time.Minute)
		p.settle("used up", func() bool { return live() == 0 })
		now := time.Now().UTC()
		month := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC)
		time.Sleep(time.Until(month) - time.Second)
		synctest.Wait()
		if live() != 0 {
			t.Error("there are nodes before the month is over")
		}
		p.settle("a new month", func() bool { return live() == 1 })
		if late := time.Since(month); late > time.Minute {
			t.Errorf("the node came %s after the month began", late)
		}
	})
}

// A loop that starts late, or again, does not tell twice what was told, and finds what it missed.
func TestBudgetAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 2)
		if code, b := p.do("PUT", "/berth/v1/sizes/Standard_DS3_v2", map[string]any{"price": 3.6, "lowPrice": 3.6}); code >= 300 {
			t.Fatalf("%d %s", code, b)
		}
		p.clusterOf("cpu", 0, 1, nil)
		p.budget("workspace", 5)
		p.on("cpu", "long", "forever", nil)
		p.until("long", berth.Running)
		time.Sleep(4100 * time.Second)
		for range 2 {
			stop := p.watchBudgets()
			synctest.Wait()
			if got := p.told("workspace"); got != berth.EventBudgetWarning {
				t.Errorf("told %q", got)
			}
			stop()
		}
		time.Sleep(1000 * time.Second)
		defer p.watchBudgets()()
		p.until("long", berth.Canceled)
	})
}

// TestReservations: what is reserved is the sum of what jobs that have not ended reserve, whatever
// becomes of them, and nothing when all have.
func TestReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 0, 1, nil)
		p.budget("workspace", 1000)
		p.limit(0, time.Time{}) // none starts
		sum := 0.0
		check := func() {
			t.Helper()
			synctest.Wait()
			if b := p.standing("workspace"); math.Abs(b.Reserved-sum) > 1e-9 {
				t.Errorf("%v are reserved, want %v", b.Reserved, sum)
			}
		}
		var each []float64
		for i := range 20 {
			p.on("cpu", fmt.Sprint("j", i), "true", map[string]any{"limits": map[string]any{"timeout": fmt.Sprintf("PT%dM", i+1)}})
			_, st := p.job(fmt.Sprint("j", i))
			each = append(each, st.Reserved)
			sum += st.Reserved
			check()
		}
		if sum == 0 {
			t.Fatal("nothing is reserved")
		}
		for i := 0; i < 20; i += 3 {
			p.do("POST", p.ws+"/jobs/"+fmt.Sprint("j", i)+"/cancel", nil)
			p.until(fmt.Sprint("j", i), berth.Canceled)
			sum -= each[i]
			check()
		}
		p.stop()
		p.run()
		check()
		p.limit(4, time.Time{})
		for i := range 20 {
			if i%3 != 0 {
				p.until(fmt.Sprint("j", i), berth.Completed)
			}
		}
		sum = 0
		check()
	})
}
