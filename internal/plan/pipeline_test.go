package plan_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/plan"
)

// steps of a pipeline: first, then left and right beside each other, then last.
func steps(pool func(name string) plan.Pool, more func(s *plan.Step)) []plan.Step {
	var out []plan.Step
	for _, s := range []struct {
		name  string
		after []string
	}{{"first", nil}, {"left", []string{"first"}}, {"right", []string{"first"}}, {"last", []string{"left", "right"}}} {
		step := plan.Step{Snapshot: plan.Snapshot{Now: now, Job: plan.Job{Name: s.name, User: "ann", Nodes: 1}, Pool: pool(s.name)}, After: s.after}
		if more != nil {
			more(&step)
		}
		out = append(out, step)
	}
	return out
}

func near(got *float64, want float64) bool { return got != nil && math.Abs(*got-want) < 1e-9 }

func free(string) plan.Pool { return cluster(4, 4, 0) }

func TestPipeline(t *testing.T) {
	limit := func(s *plan.Step) {
		s.Job.Timeout = map[string]time.Duration{"first": time.Hour, "left": 2 * time.Hour, "right": 30 * time.Minute, "last": time.Hour}[s.Job.Name]
	}
	p := plan.Children("p", "pipeline", steps(free, limit), nil)
	if p.Verdict != berth.PlanNow || p.Type != "pipeline" || p.Compute != "cpu" || len(p.Steps) != 4 || len(p.Limits) != 0 {
		t.Errorf("%+v", p)
	}
	// The longest way is first, left, last; all of them cost.
	if p.Duration.Basis != "limit" || p.Duration.Limit != 4*3600 || p.Cost.Expected != nil || !near(p.Cost.AtMost, 0.6*4.5) || p.Cost.Currency != "USD" {
		t.Errorf("%+v %+v", p.Duration, p.Cost)
	}

	known := func(s *plan.Step) {
		s.Known, s.History = true, cost.History{Runs: 3 + len(s.After), Median: 10 * time.Minute, P90: 20 * time.Minute}
	}
	p = plan.Children("p", "pipeline", steps(free, known), nil)
	if d := p.Duration; d.Basis != "history" || d.Runs != 3 || d.Median != 1800 || d.P90 != 3600 || !near(p.Cost.Expected, 0.6*4/6) {
		t.Errorf("%+v %+v", d, *p.Cost.Expected)
	}

	// Of what is not known of every step nothing is said of the whole.
	p = plan.Children("p", "pipeline", steps(free, func(s *plan.Step) {
		if s.Job.Name != "right" {
			known(s)
		}
	}), nil)
	if p.Duration.Basis != "unknown" || p.Cost.Known || p.Cost.Expected != nil {
		t.Errorf("%+v %+v", p.Duration, p.Cost)
	}

	if p := plan.Children("p", "pipeline", nil, nil); p.Verdict != berth.PlanNow || p.Duration.Basis != "unknown" {
		t.Errorf("%+v", p)
	}
}

func TestPipelineVerdicts(t *testing.T) {
	for _, tt := range []struct {
		name    string
		pool    func(step string) plan.Pool
		verdict berth.Verdict
		reason  string
		kinds   string
	}{
		{"all free", free, berth.PlanNow, "step first would start now", ""},
		{"the first waits", func(step string) plan.Pool {
			if step == "first" {
				return cluster(1, 1, 1)
			}
			return cluster(4, 4, 0)
		}, berth.PlanWait, "step first: ", "max_instances"},
		{"a later one would wait now", func(step string) plan.Pool {
			if step == "last" {
				return cluster(1, 1, 1)
			}
			return cluster(4, 4, 0)
		}, berth.PlanNow, "step first would start now", ""},
		{"a later one never can", func(step string) plan.Pool {
			if step == "last" {
				return cluster(0, 0, 0)
			}
			return cluster(4, 4, 0)
		}, berth.PlanNever, "step last: it needs 1 nodes at once", "gang!"},
	} {
		p := plan.Children("p", "pipeline", steps(tt.pool, nil), nil)
		if p.Verdict != tt.verdict || !strings.HasPrefix(p.Reason, tt.reason) || kinds(p) != tt.kinds {
			t.Errorf("%s: %s, %q, %q", tt.name, p.Verdict, p.Reason, kinds(p))
		}
	}
}

// TestPipelineBudget: it is the whole pipeline that has to fit.
func TestPipelineBudget(t *testing.T) {
	hour := func(s *plan.Step) { s.Job.Timeout = time.Hour }
	budget := func(amount, left float64) []berth.BudgetStatus {
		return []berth.BudgetStatus{{Name: "workspace", Budget: berth.Budget{Amount: amount, Currency: "USD"}, Left: left}}
	}
	for _, tt := range []struct {
		amount, left float64
		verdict      berth.Verdict
		kinds        string
	}{
		{10, 3, berth.PlanNow, ""},
		{10, 2, berth.PlanWait, "budget"},  // each of the four fits, all together do not
		{2, 2, berth.PlanNever, "budget!"}, // it is more than there ever is
	} {
		p := plan.Children("p", "pipeline", steps(free, hour), budget(tt.amount, tt.left))
		if p.Verdict != tt.verdict || kinds(p) != tt.kinds || len(p.Budgets) != 1 || !near(&p.Budgets[0].Reserve, 2.4) {
			t.Errorf("%+v: %s %q %+v", tt, p.Verdict, kinds(p), p.Budgets)
		}
	}
}
