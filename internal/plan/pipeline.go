package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
)

// Step is a command of a job with children.
type Step struct {
	Snapshot          // without budgets: these are for the pipeline as a whole
	After    []string // names of the steps that have to complete first, which stand before it
}

// Children is the plan of a job with children, a pipeline for example, whose commands are known.
// Each is planned as if it were submitted now. The job begins with the first that can; it cannot
// run if one of them never can. Word is what such a job is called.
func Children(name, word string, steps []Step, all []berth.BudgetStatus) berth.Plan {
	p := berth.Plan{
		Job: name, Type: word, Limits: []berth.PlanLimit{}, Warnings: []string{}, Budgets: []berth.PlanBudget{}, Advice: []string{},
		Start: berth.PlanStart{Jobs: []berth.PlanJob{}},
	}
	for _, s := range steps {
		one := Make(s.Snapshot)
		one.After = s.After
		p.Steps = append(p.Steps, one)
	}
	begin(&p)
	p.Duration, p.Cost = longest(p.Steps), sum(p.Steps)
	if ask, ok := askOf(steps); ok {
		reserve(all, ask, &p)
	}
	return p
}

// begin fills in whether and when the pipeline would begin, and what its steps say.
func begin(p *berth.Plan) {
	order := []berth.Verdict{berth.PlanNow, berth.PlanSoon, berth.PlanWait, berth.PlanNever}
	rank := func(x berth.Plan) int { return slices.Index(order, x.Verdict) }
	var first, never *berth.Plan
	for i := range p.Steps {
		s := &p.Steps[i]
		if len(s.After) == 0 && (first == nil || rank(*s) < rank(*first)) {
			first = s
		}
		if s.Verdict == berth.PlanNever && never == nil {
			never = s
		}
		if i == 0 {
			p.Compute = s.Compute
		} else if p.Compute != s.Compute {
			p.Compute = ""
		}
		p.Warnings = merge(p.Warnings, s.Warnings)
	}
	if first == nil { // no steps at all
		p.Verdict, p.Reason = berth.PlanNow, "it has no steps"
		return
	}
	say := first
	if never != nil {
		say = never
	}
	p.Verdict, p.Reason, p.Start = say.Verdict, "step "+say.Job+": "+say.Reason, say.Start
	p.Boot = say.Boot
	if say.Verdict == berth.PlanNow && len(p.Steps) > 1 {
		p.Reason = "step " + say.Job + " would start now, the others after it or beside it"
	}
	for _, s := range p.Steps {
		if s.Verdict != berth.PlanNever && s.Job != say.Job {
			continue // what a later step would wait for now may be over by then
		}
		p.Advice = merge(p.Advice, s.Advice)
		for _, l := range s.Limits {
			l.Why = "step " + s.Job + ": " + l.Why
			p.Limits = append(p.Limits, l)
		}
	}
}

// longest is how long the pipeline would run if no step waited for anything but those before it.
func longest(steps []berth.Plan) berth.PlanDuration {
	path := func(took func(d berth.PlanDuration) float64) (most float64) {
		ends := map[string]float64{}
		for _, s := range steps {
			var at float64
			for _, before := range s.After {
				at = max(at, ends[before])
			}
			ends[s.Job] = at + took(s.Duration)
			most = max(most, ends[s.Job])
		}
		return most
	}
	known, limited, runs := true, true, 0
	for i, s := range steps {
		known = known && s.Duration.Basis == "history"
		limited = limited && s.Duration.Limit > 0
		if i == 0 || s.Duration.Runs < runs {
			runs = s.Duration.Runs
		}
	}
	d := berth.PlanDuration{Basis: "unknown"}
	if limited && len(steps) > 0 {
		d.Basis, d.Limit = "limit", path(func(d berth.PlanDuration) float64 { return d.Limit })
	}
	if known && len(steps) > 0 {
		d.Basis, d.Runs, d.Of = "history", runs, "steps"
		d.Median = path(func(d berth.PlanDuration) float64 { return d.Median })
		d.P90 = path(func(d berth.PlanDuration) float64 { return d.P90 })
	}
	return d
}

// sum is what the steps would cost together, as far as each is known.
func sum(steps []berth.Plan) berth.PlanCost {
	var total berth.PlanCost
	for _, s := range steps {
		if s.Cost.Currency == "" {
			continue
		}
		if total.Currency = cmp.Or(total.Currency, s.Cost.Currency); total.Currency != s.Cost.Currency {
			return berth.PlanCost{} // amounts of different currencies are never added
		}
	}
	whole := func(of func(berth.PlanCost) *float64) *float64 {
		v := 0.0
		for _, s := range steps {
			one := of(s.Cost)
			if one == nil {
				return nil
			}
			v += *one
		}
		return &v
	}
	total.Expected = whole(func(c berth.PlanCost) *float64 { return c.Expected })
	total.AtMost = whole(func(c berth.PlanCost) *float64 { return c.AtMost })
	total.Known = total.Expected != nil || total.AtMost != nil
	return total
}

// askOf is what the steps would reserve together: a pipeline holds it all from the beginning.
func askOf(steps []Step) (total cost.Ask, ok bool) {
	for _, s := range steps {
		ask, costs := s.Ask()
		ok = ok || costs
		if costs && ask.Priced && (total.Currency == "" || total.Currency == ask.Currency) {
			total.Priced, total.Currency = true, ask.Currency
			total.Amount += ask.Amount
		}
	}
	total.How = fmt.Sprintf("%d steps", len(steps))
	return total, ok
}

// reserve says whether budgets have room for it; one that has not keeps the pipeline from being
// accepted.
func reserve(all []berth.BudgetStatus, ask cost.Ask, p *berth.Plan) {
	before := len(p.Limits)
	budgets(all, ask, p)
	short := p.Limits[before:]
	if len(short) == 0 {
		return
	}
	p.Advice = merge(p.Advice, []string{"berth budget list"})
	if p.Verdict == berth.PlanNever {
		return
	}
	p.Verdict, p.Reason, p.Start = berth.PlanWait, short[0].Why, berth.PlanStart{Jobs: []berth.PlanJob{}}
	if i := slices.IndexFunc(short, func(l berth.PlanLimit) bool { return l.Ever }); i >= 0 {
		p.Verdict, p.Reason = berth.PlanNever, short[i].Why
	}
}

func merge(all, more []string) []string {
	for _, m := range more {
		if !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	return all
}
