// Package plan says what would become of a job before it is submitted, and why one that waits does:
// pure functions over a snapshot that ask the scheduler and the autoscaler themselves, so that a
// plan and what then happens cannot differ.
package plan

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/picture"
	"github.com/berthml/berth/internal/sched"
)

// machine is what a single machine is called.
func (p Pool) machine() string {
	if p.Type() == picture.Local {
		return "this machine"
	}
	return p.Name
}

// Snapshot is everything a plan is made from.
type Snapshot struct {
	Now  time.Time
	Job  Job
	Pool Pool
	// History is how long runs like the job took, where Known.
	History cost.History
	Known   bool
	Budgets []berth.BudgetStatus
	// Refused is why the job would not be accepted, or could never run, beside what a plan finds
	// out by itself.
	Refused []berth.PlanLimit
	// Warnings are what the user should know of the target.
	Warnings []string
}

// Job is a job that somebody might submit.
type Job struct {
	Name, User string
	Nodes      int
	Priority   int
	Spot       bool
	GPUs       int           // on each node, as berth.Task.GPUs
	Timeout    time.Duration // 0 is none
}

// Pool is the compute it would go to.
type Pool struct {
	picture.Read
	New    bool              // it would be created for the job
	Size   *berth.Size       // nil for a machine that costs nothing here
	Expect map[string]Expect // by the ID of a gang
	// Room is how many nodes more it may have now, whatever Max says; Bound is whose limit that is,
	// when it is one. Room does not count where Short says that the pool cannot grow.
	Room  int
	Bound berth.PlanLimit
}

// Down is why the pool takes no tasks now, nil when it does.
func (p Pool) Down() *berth.PlanLimit {
	kind, why := p.Read.Down()
	if kind == "" {
		return nil
	}
	return &berth.PlanLimit{Kind: kind, Whose: p.Name, Why: why}
}

// Expect is how long a gang runs.
type Expect struct {
	From  time.Time // zero is since it has its nodes
	Took  time.Duration
	Limit bool // it is a limit, not a guess
}

// ours is the id of the gang that a plan is about.
const ours = "\x00plan"

// Make is the plan of a job.
func Make(s Snapshot) berth.Plan {
	p := berth.Plan{
		Job: s.Job.Name, Compute: s.Pool.Name, Type: s.Pool.Type(), New: s.Pool.New, Nodes: max(1, s.Job.Nodes),
		Limits: slices.Clone(s.Refused), Warnings: slices.Clone(s.Warnings), Budgets: []berth.PlanBudget{}, Advice: []string{},
		Start: berth.PlanStart{Jobs: []berth.PlanJob{}},
	}
	p.Duration = duration(s)
	if z := s.Pool.Size; z != nil {
		p.Size, p.Tier = z.Name, cost.Tier(s.Pool.Low())
	}
	p.Price = price(s, p.Nodes)
	p.Cost = total(s, p)
	if ask, ok := s.Ask(); ok {
		budgets(s.Budgets, ask, &p)
	}
	if p.Nodes > s.Pool.Max {
		p.Limits = append(p.Limits, berth.PlanLimit{Kind: berth.LimitGang, Ever: true, Whose: s.Pool.Name, Why: gang(p.Nodes, s.Pool)})
	}
	if i := slices.IndexFunc(p.Limits, func(l berth.PlanLimit) bool { return l.Ever }); i >= 0 {
		p.Verdict, p.Reason = berth.PlanNever, p.Limits[i].Why
	} else {
		start(s, &p)
	}
	finish(s, &p)
	return p
}

func gang(nodes int, p Pool) string {
	if p.Max == 1 {
		return fmt.Sprintf("it needs %d nodes at once, and %s runs a job on one", nodes, p.Name)
	}
	return fmt.Sprintf("it needs %d nodes at once, and %s can have at most %d", nodes, p.Name, p.Max)
}

// start fills in whether and when the job would start.
func start(s Snapshot, p *berth.Plan) {
	v := view(s.Pool, &sched.Gang{
		ID: ours, Name: s.Job.Name, Nodes: p.Nodes, User: s.Job.User, Priority: s.Job.Priority, Spot: s.Job.Spot, Limit: s.Job.Timeout,
		GPUs: s.Job.GPUs,
	}, s.Now)
	p.Start.Ahead = v.queue.AheadOf(ours, v.pool.Held)
	choice := v.choose(ours, s.Now)
	refused := len(p.Limits) > 0
	switch {
	case s.Pool.Down() != nil:
		p.Limits = append(p.Limits, *s.Pool.Down())
		p.Verdict, p.Reason = berth.PlanWait, choice.Why
	case len(choice.Nodes) > 0:
		p.Verdict, p.Reason = berth.PlanNow, now(s.Pool, p.Nodes)
		p.Start.At = s.Now
	case len(choice.Preempt) > 0:
		p.Verdict, p.Reason = berth.PlanSoon, choice.Why
		p.Warnings = append(p.Warnings, fmt.Sprintf("it would stop %s of lower priority, which would start again later", jobs(len(choice.Preempt))))
	default:
		if boot, ok := v.grown(ours, s.Now); ok {
			p.Verdict, p.Boot = berth.PlanSoon, boot
			p.Reason = fmt.Sprintf("it would start when %s of %s %s started", nodes(boot), s.Pool.Name, have(boot))
			if took := bootTime(s.Pool.Nodes); took > 0 {
				p.Start.At, p.Start.Basis = s.Now.Add(took), "history"
			}
			break
		}
		p.Verdict, p.Reason = berth.PlanWait, choice.Why
		if bar, ok := s.Pool.Bars[s.Job.User]; ok && choice.Why == bar.Why {
			p.Limits = append(p.Limits, berth.PlanLimit{Kind: berth.LimitQuota, Whose: s.Pool.Name, Why: bar.Why})
			break // when the user's other jobs end nobody knows here: they may be anywhere
		}
		p.Limits = append(p.Limits, v.limit(s.Pool, choice.Why))
		p.Start.At, p.Start.Basis = v.simulate(s.Pool.Expect, ours, s.Now)
	}
	if refused { // by a budget that others hold for the moment
		p.Verdict, p.Reason, p.Start.At, p.Start.Basis = berth.PlanWait, p.Limits[0].Why, time.Time{}, ""
	}
	if p.Verdict == berth.PlanWait || p.Start.Ahead > 0 {
		p.Start.Jobs = v.inTheWay(s.Pool.Expect, ours, s.Now)
	}
}

// bootTime is how long the nodes that are there took to start, the middle one; 0 when there are
// none.
func bootTime(nodes []picture.Node) time.Duration {
	var took []time.Duration
	for _, n := range nodes {
		if d := n.Ready.Sub(n.Created); !n.Ready.IsZero() && d > 0 {
			took = append(took, d)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)/2]
}

func now(p Pool, n int) string {
	switch {
	case p.Single():
		return "it would start now: a slot of " + p.machine() + " is free"
	case n == 1:
		return "it would start now: a node of " + p.Name + " is free"
	}
	return fmt.Sprintf("it would start now: %s of %s are free", nodes(n), p.Name)
}

func duration(s Snapshot) berth.PlanDuration {
	d := berth.PlanDuration{Basis: "unknown", Limit: s.Job.Timeout.Seconds()}
	switch {
	case s.Known:
		d.Basis, d.Runs, d.Of = "history", s.History.Runs, s.History.Of
		d.Median, d.P90 = s.History.Median.Seconds(), s.History.P90.Seconds()
	case s.Job.Timeout > 0:
		d.Basis = "limit"
	}
	return d
}

func price(s Snapshot, n int) berth.PlanPrice {
	z := s.Pool.Size
	if z == nil {
		zero := 0.0
		return berth.PlanPrice{Known: true, PerNode: &zero, PerHour: &zero}
	}
	out := berth.PlanPrice{Dedicated: z.Price, Low: z.LowPrice, Currency: z.Currency}
	if r := cost.Rate(*z, s.Pool.Low()); r != nil {
		hour := *r * float64(n) / float64(max(1, s.Pool.Slots))
		out.Known, out.PerNode, out.PerHour = true, r, &hour
	}
	return out
}

// total is what the job would cost: the machine itself costs nothing.
func total(s Snapshot, p berth.Plan) berth.PlanCost {
	if s.Pool.Size == nil {
		zero := 0.0
		return berth.PlanCost{Known: true, Expected: &zero, AtMost: &zero}
	}
	c := berth.PlanCost{Currency: p.Price.Currency}
	if s.Known && s.History.Priced {
		c.Spent = &s.History.Cost
	}
	if !p.Price.Known {
		return c
	}
	hour := *p.Price.PerHour
	at := func(d time.Duration) *float64 {
		v := hour * d.Hours()
		return &v
	}
	switch {
	case s.Known && s.Job.Timeout > 0:
		c.Known, c.Expected, c.AtMost = true, at(min(s.History.Median, s.Job.Timeout)), at(s.Job.Timeout)
	case s.Known:
		c.Known, c.Expected, c.AtMost = true, at(s.History.Median), at(s.History.P90)
	case s.Job.Timeout > 0:
		c.Known, c.AtMost = true, at(s.Job.Timeout)
	}
	if s.Pool.Type() == picture.Cluster && s.Pool.Idle > 0 && s.Pool.Min < p.Nodes {
		idle := *p.Price.PerNode * float64(p.Nodes-s.Pool.Min) * s.Pool.Idle.Hours()
		c.Idle = &idle
	}
	return c
}

// Ask is what the job would reserve of budgets; ok is false for one that costs nothing.
func (s Snapshot) Ask() (ask cost.Ask, ok bool) {
	if s.Pool.Size == nil {
		return ask, false
	}
	return cost.Reserve(max(1, s.Job.Nodes), s.Pool.Slots, *s.Pool.Size, s.Pool.Low(), s.Job.Timeout, s.History, s.Known), true
}

// budgets says whether what the job would reserve fits.
func budgets(all []berth.BudgetStatus, ask cost.Ask, p *berth.Plan) {
	for _, b := range all {
		ok, why := cost.Fits(b, ask)
		p.Budgets = append(p.Budgets, berth.PlanBudget{Name: b.Name, Left: b.Left, Reserve: ask.Amount, Currency: b.Currency, Fits: ok, Why: why})
		if !ok {
			p.Limits = append(p.Limits, berth.PlanLimit{Kind: berth.LimitBudget, Whose: b.Name, Why: why, Ever: cost.Exceeds(b.Budget, ask)})
		} else if !ask.Priced || ask.Currency != b.Currency {
			p.Warnings = append(p.Warnings, why)
		}
	}
}

// finish adds what holds for every verdict.
func finish(s Snapshot, p *berth.Plan) {
	if p.Limits == nil {
		p.Limits = []berth.PlanLimit{}
	}
	if s.Pool.Size != nil && !p.Price.Known {
		p.Warnings = append(p.Warnings, fmt.Sprintf("the price of %s (%s) is not known", p.Size, p.Tier))
	}
	if s.Pool.Low() || s.Job.Spot {
		p.Warnings = append(p.Warnings, "low priority: its nodes may be taken away at any time; it then starts again, with what it has written to ./outputs")
	}
	if p.Warnings == nil {
		p.Warnings = []string{}
	}
	for _, l := range p.Limits {
		if a := advice(l, s, p.Nodes); a != "" && !slices.Contains(p.Advice, a) {
			p.Advice = append(p.Advice, a)
		}
	}
}

// advice is what to do about a limit, where its own sentence does not say so.
func advice(l berth.PlanLimit, s Snapshot, n int) string {
	name := s.Pool.Name
	switch l.Kind {
	case berth.LimitMax:
		return fmt.Sprintf("berth compute update -n %s --max-instances %d", name, s.Pool.Max+n)
	case berth.LimitGang:
		if s.Pool.Type() == picture.Cluster {
			return fmt.Sprintf("berth compute update -n %s --max-instances %d", name, n)
		}
		return "use a cluster, or ask for fewer nodes with resources.instance_count"
	case berth.LimitStopped:
		return "berth compute start -n " + name
	case berth.LimitBudget:
		used := slices.ContainsFunc(s.Budgets, func(b berth.BudgetStatus) bool { return b.Name == l.Whose && b.Left <= 0 })
		if s.Job.Timeout == 0 && !used {
			return "set limits.timeout: a shorter job reserves less"
		}
		return "berth budget list"
	case berth.LimitSlots:
		return "berth ps"
	case berth.LimitDeleting, berth.LimitOwner, berth.LimitSize:
		return "berth compute list"
	}
	return ""
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

func have(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

func jobs(n int) string {
	if n == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", n)
}

// NoBound is the Room of a pool that nothing but its own size bounds.
const NoBound = math.MaxInt32
