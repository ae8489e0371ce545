package control_test

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
)

// TestLocalHasAPrice: where the machine itself has a price its jobs are charged for their slots,
// shown in cost, held and stopped by budgets.
func TestLocalHasAPrice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := buildOn(t, berth.LocalTerms{Slots: 2, Price: 7.2, Currency: "USD"}) // 3.60 an hour for a job
		defer p.watchBudgets()()
		p.submit("before", "sleep 1000") // 1.00
		time.Sleep(1000 * time.Second)
		p.until("before", berth.Completed)
		_, b := p.do("GET", p.ws+"/cost?by=user,compute", nil)
		var spent berth.Spending
		if err := json.Unmarshal(b, &spent); err != nil {
			t.Fatalf("%v in %s", err, b)
		}
		if len(spent.Groups) != 1 || spent.Groups[0].User != "ann" || spent.Groups[0].Compute != "local" || math.Abs(spent.Groups[0].Cost-1) > 0.01 {
			t.Errorf("%s", b)
		}
		p.budget("workspace", 5)
		p.submit("long", "forever") // holds 3.60 for an hour
		if code, b := p.put("more", "local", "true", nil); code != http.StatusForbidden || !strings.Contains(string(b), "BudgetExceeded") {
			t.Errorf("a second hour: %d %s", code, b)
		}
		p.until("long", berth.Running)
		began := time.Now()
		time.Sleep(4900 * time.Second)
		synctest.Wait()
		if s, _ := p.job("long"); s != berth.Running {
			t.Errorf("it is %s before the budget is used up", s)
		}
		st := p.until("long", berth.Canceled)
		if took := time.Since(began); st.StopCause != "budget" || took > 5100*time.Second { // 5.00 at 3.60 an hour
			t.Errorf("after %s: %+v", took, st)
		}
		if b := p.standing("workspace"); math.Abs(b.Spent-5) > 0.1 {
			t.Errorf("%+v", b)
		}
	})
}

// TestLocalJobsPerUser: a user has no more jobs on the machine itself than is allowed, and the
// others are not held up by that.
func TestLocalJobsPerUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := buildOn(t, berth.LocalTerms{Slots: 3, PerUser: 1})
		p.submit("a1", "sleep 60")
		p.submit("a2", "sleep 60")
		p.until("a1", berth.Running)
		p.settle("it says why it waits", func() bool {
			_, st := p.job("a2")
			return strings.Contains(st.Reason, "a user may have 1 job on local at once")
		})
		_, b := p.do("POST", p.ws+"/jobs/a3/plan", map[string]any{"properties": map[string]any{"jobType": "Command", "command": "true", "computeId": "local"}})
		if !strings.Contains(string(b), `"verdict":"wait"`) || !strings.Contains(string(b), "local_jobs_per_user") {
			t.Errorf("%s", b)
		}
		p.user = "bob"
		p.submit("b1", "true")
		p.until("b1", berth.Completed)
		if s, _ := p.job("a2"); s != berth.Queued {
			t.Errorf("a2 is %s", s)
		}
		p.until("a2", berth.Completed)
	})
}

// TestNoLocalJobs: a server that runs nothing on its own machine refuses jobs that name it, and
// gives those that name nothing a pool.
func TestNoLocalJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := buildOn(t, berth.LocalTerms{Slots: 1, Off: true})
		if code, b := p.put("a", "local", "true", nil); code != http.StatusForbidden || !strings.Contains(string(b), "runs no jobs on its own machine") {
			t.Errorf("%d %s", code, b)
		}
		if code, b := p.put("b", "", "true", nil); code != http.StatusCreated {
			t.Fatalf("%d %s", code, b)
		}
		if st := p.until("b", berth.Completed); !strings.HasPrefix(st.Compute, "serverless-") {
			t.Errorf("it ran on %s", st.Compute)
		}
	})
}
