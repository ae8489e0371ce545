package plan_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/picture"
	"github.com/berthml/berth/internal/plan"
	"github.com/berthml/berth/internal/sched"
)

var now = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func price(v float64) *float64 { return &v }

var small = berth.Size{Name: "Standard_DS3_v2", VCPUs: 4, MemoryGB: 14, Price: price(0.6), LowPrice: price(0.1), Currency: "USD"}

// cluster is a pool of n nodes, of which the first run jobs of an hour's limit that began half an
// hour ago.
func cluster(most, n, busy int) plan.Pool {
	p := plan.Pool{Size: &small, Room: plan.NoBound, Expect: map[string]plan.Expect{}}
	p.Name, p.ComputeType, p.Max, p.Slots, p.Idle, p.Held = "cpu", berth.TypeCluster, most, 1, 2*time.Minute, map[string]int{}
	for i := range n {
		x := picture.Node{Node: &berth.Node{Name: fmt.Sprint("n", i), State: berth.NodeIdle, Slots: 1}}
		if i < busy {
			id := fmt.Sprint("r", i)
			x.State, x.Used = berth.NodeRunning, 1
			p.Held["bob"]++
			p.Running = append(p.Running, sched.Running{Gang: sched.Gang{ID: id, Name: id, Nodes: 1, User: "bob"}, On: []string{x.Name}, Since: now.Add(-30 * time.Minute)})
			p.Expect[id] = plan.Expect{Took: time.Duration(60+i) * time.Minute, Limit: true}
		}
		p.Nodes = append(p.Nodes, x)
	}
	return p
}

func wait(p plan.Pool, names ...string) plan.Pool {
	for i, n := range names {
		p.Waiting = append(p.Waiting, sched.Gang{ID: n, Name: n, Nodes: 1, User: "ann", Seq: int64(i + 1)})
		p.Expect[n] = plan.Expect{Took: 20 * time.Minute}
	}
	return p
}

func job(n int) plan.Job { return plan.Job{Name: "train", User: "ann", Nodes: n} }

func kinds(p berth.Plan) string {
	var out []string
	for _, l := range p.Limits {
		k := l.Kind
		if l.Ever {
			k += "!"
		}
		out = append(out, k)
	}
	return strings.Join(out, " ")
}

func TestVerdicts(t *testing.T) {
	local := plan.Pool{Room: plan.NoBound}
	here := picture.Machine("local", 2)
	local.Name, local.Max, local.Slots, local.Nodes = "local", 1, 2, []picture.Node{{Node: &here, Used: 1}}
	full := local
	full.Nodes = []picture.Node{{Node: &here, Used: 2}}
	starting := cluster(2, 0, 0)
	starting.Nodes = []picture.Node{{Node: &berth.Node{Name: "n0", State: berth.NodePreparing, Slots: 1}}}
	bound := cluster(9, 2, 2)
	bound.Room, bound.Bound = 0, berth.PlanLimit{Kind: berth.LimitQuota, Why: "the quota is used up"}
	down := cluster(1, 0, 0)
	down.Name, down.ComputeType, down.State.Instance = "box", berth.TypeInstance, &berth.InstanceState{State: "Stopped"}
	spot := cluster(1, 1, 1)
	spot.Running[0].Spot, spot.Running[0].Priority = true, -2000
	for _, tt := range []struct {
		name    string
		pool    plan.Pool
		job     plan.Job
		verdict berth.Verdict
		boot    int
		kinds   string
		reason  string
	}{
		{"a slot is free", local, job(1), "now", 0, "", "it would start now: a slot of this machine is free"},
		{"no slot is free", full, job(1), "wait", 0, "slots", "waiting for local: all 2 slots are in use"},
		{"the machine runs a job on one node", local, job(2), "never", 0, "gang!", "it needs 2 nodes at once, and local runs a job on one"},
		{"a node is free", cluster(4, 2, 1), job(1), "now", 0, "", "it would start now: a node of cpu is free"},
		{"from zero", cluster(4, 0, 0), job(1), "soon", 1, "", "it would start when 1 node of cpu has started"},
		{"some are free", cluster(4, 1, 0), job(3), "soon", 2, "", "it would start when 2 nodes of cpu have started"},
		{"one is on its way", starting, job(1), "soon", 1, "", "it would start when 1 node of cpu has started"},
		{"full", cluster(2, 2, 2), job(1), "wait", 0, "max_instances", "all 2 nodes of cpu are in use"},
		{"too large", cluster(2, 2, 0), job(3), "never", 0, "gang!", "it needs 3 nodes at once, and cpu can have at most 2"},
		{"no quota", bound, job(1), "wait", 0, "quota", "all 2 nodes of cpu are in use; it cannot grow: the quota is used up"},
		{"stopped", down, job(1), "wait", 0, "stopped", "box takes no jobs now: the instance is Stopped; `berth compute start -n box` starts it"},
		{"for others to stop", spot, job(1), "soon", 0, "", "waiting for job r0 of lower priority to stop"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := plan.Make(plan.Snapshot{Now: now, Job: tt.job, Pool: tt.pool})
			if p.Verdict != tt.verdict || p.Boot != tt.boot || kinds(p) != tt.kinds || p.Reason != tt.reason {
				t.Errorf("%s, boot %d, limits %q: %s\nwant %s, boot %d, limits %q: %s", p.Verdict, p.Boot, kinds(p), p.Reason, tt.verdict, tt.boot, tt.kinds, tt.reason)
			}
		})
	}
}

func TestBehind(t *testing.T) {
	pool := wait(cluster(2, 2, 2), "w1", "w2")
	p := plan.Make(plan.Snapshot{Now: now, Job: job(1), Pool: pool})
	// r0 ends at 12:30 and w1 takes its node for 20 minutes, r1 at 12:31 and w2 does; ours is next.
	if p.Start.Ahead != 2 || !p.Start.At.Equal(now.Add(50*time.Minute)) || p.Start.Basis != "history" {
		t.Errorf("%+v", p.Start)
	}
	want := []berth.PlanJob{
		{Name: "r0", User: "bob", Status: "running", Nodes: 1, Ends: now.Add(30 * time.Minute)},
		{Name: "r1", User: "bob", Status: "running", Nodes: 1, Ends: now.Add(31 * time.Minute)},
		{Name: "w1", User: "ann", Status: "waiting", Nodes: 1},
		{Name: "w2", User: "ann", Status: "waiting", Nodes: 1},
	}
	if d := cmp.Diff(want, p.Start.Jobs); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"berth compute update -n cpu --max-instances 3"}, p.Advice); d != "" {
		t.Error(d)
	}
	// Somebody who holds nothing yet goes before the second of a user who waits already.
	other := job(1)
	other.User = "cyd"
	if p := plan.Make(plan.Snapshot{Now: now, Job: other, Pool: pool}); p.Start.Ahead != 1 || !p.Start.At.Equal(now.Add(31*time.Minute)) {
		t.Errorf("%+v", p.Start)
	}
	pool = cluster(2, 2, 2)
	if p := plan.Make(plan.Snapshot{Now: now, Job: job(1), Pool: pool}); !p.Start.At.Equal(now.Add(30*time.Minute)) || p.Start.Basis != "limits" {
		t.Errorf("%+v", p.Start)
	}
	delete(pool.Expect, "r0")
	delete(pool.Expect, "r1")
	if p := plan.Make(plan.Snapshot{Now: now, Job: job(1), Pool: pool}); !p.Start.At.IsZero() {
		t.Errorf("nobody knows when, and the plan says %s", p.Start.At)
	}
	// What should have ended long ago says nothing; a limit that has passed is about to be kept.
	pool.Expect["r0"] = plan.Expect{Took: time.Minute}
	if p := plan.Make(plan.Snapshot{Now: now, Job: job(1), Pool: pool}); !p.Start.At.IsZero() {
		t.Errorf("a guess that failed is used: %s", p.Start.At)
	}
}

// Nodes that are there say how long the next take.
func TestBoot(t *testing.T) {
	pool := cluster(3, 2, 2)
	if p := plan.Make(plan.Snapshot{Now: now, Job: job(1), Pool: pool}); p.Boot != 1 || !p.Start.At.IsZero() {
		t.Errorf("%+v", p)
	}
	pool.Nodes[0].Created, pool.Nodes[0].Ready = now.Add(-time.Hour), now.Add(-time.Hour+90*time.Second)
	if p := plan.Make(plan.Snapshot{Now: now, Job: job(1), Pool: pool}); p.Verdict != berth.PlanSoon || !p.Start.At.Equal(now.Add(90*time.Second)) {
		t.Errorf("%+v", p.Start)
	}
}

func TestPriceAndCost(t *testing.T) {
	s := plan.Snapshot{Now: now, Job: job(2), Pool: cluster(4, 0, 0)}
	p := plan.Make(s)
	if p.Tier != "dedicated" || !p.Price.Known || *p.Price.PerHour != 1.2 || *p.Price.PerNode != 0.6 || *p.Price.Low != 0.1 || p.Cost.Known || p.Duration.Basis != "unknown" {
		t.Errorf("%+v", p)
	}
	s.Job.Timeout = 2 * time.Hour
	if p = plan.Make(s); p.Duration.Basis != "limit" || *p.Cost.AtMost != 2.4 || p.Cost.Expected != nil || *p.Cost.Idle != 1.2*2/60 {
		t.Errorf("%+v %+v", p.Duration, p.Cost)
	}
	s.Known, s.History = true, cost.History{Of: "command", Runs: 4, Median: time.Hour, P90: 90 * time.Minute, Cost: 1.1, Priced: true}
	if p = plan.Make(s); p.Duration.Basis != "history" || p.Duration.Median != 3600 || *p.Cost.Expected != 1.2 || *p.Cost.AtMost != 2.4 || *p.Cost.Spent != 1.1 {
		t.Errorf("%+v %+v", p.Duration, p.Cost)
	}
	s.Job.Timeout = 0
	if p = plan.Make(s); math.Abs(*p.Cost.AtMost-1.8) > 1e-9 {
		t.Errorf("%+v", p.Cost)
	}
	s.Pool.Slots, s.Job.Nodes = 3, 1
	if p = plan.Make(s); math.Abs(*p.Price.PerHour-0.2) > 1e-9 {
		t.Errorf("a third of a node costs %v", *p.Price.PerHour)
	}
	s.Pool.Properties.VMPriority = "LowPriority"
	if p = plan.Make(s); p.Tier != "low_priority" || *p.Price.PerNode != 0.1 || !strings.Contains(strings.Join(p.Warnings, "\n"), "taken away at any time") {
		t.Errorf("%+v", p)
	}
	unknown := small
	unknown.LowPrice = nil
	s.Pool.Size = &unknown
	if p = plan.Make(s); p.Price.Known || p.Price.PerHour != nil || p.Cost.Known || !strings.Contains(strings.Join(p.Warnings, "\n"), "is not known") {
		t.Errorf("%+v", p)
	}
}

func TestBudgets(t *testing.T) {
	b := berth.BudgetStatus{Name: "workspace", Budget: berth.Budget{Amount: 10, Currency: "USD", Period: "month"}, Spent: 4, Reserved: 5, Left: 1}
	for _, tt := range []struct {
		timeout time.Duration
		verdict berth.Verdict
		kinds   string
	}{{time.Hour, "now", ""}, {0, "now", ""}, {2 * time.Hour, "wait", "budget"}, {24 * time.Hour, "never", "budget!"}} {
		j := job(1)
		j.Timeout = tt.timeout
		p := plan.Make(plan.Snapshot{Now: now, Job: j, Pool: cluster(1, 1, 0), Budgets: []berth.BudgetStatus{b}})
		if p.Verdict != tt.verdict || kinds(p) != tt.kinds || len(p.Budgets) != 1 {
			t.Errorf("%v: %s %q %s", tt.timeout, p.Verdict, kinds(p), p.Reason)
		}
	}
	used := b
	used.Spent, used.Reserved, used.Left = 11, 0, -1
	for _, tt := range []struct {
		b      berth.BudgetStatus
		advice string
	}{{b, "set limits.timeout: a shorter job reserves less"}, {used, "berth budget list"}} {
		long := cluster(1, 1, 0)
		size := *long.Size
		price := 3.0
		size.Price = &price
		long.Size = &size
		if p := plan.Make(plan.Snapshot{Now: now, Job: job(1), Pool: long, Budgets: []berth.BudgetStatus{tt.b}}); len(p.Advice) != 1 || p.Advice[0] != tt.advice {
			t.Errorf("%v left: advice %q", tt.b.Left, p.Advice)
		}
	}
	unpriced := cluster(1, 1, 0)
	unpriced.Size = &berth.Size{Name: "X"}
	if p := plan.Make(plan.Snapshot{Now: now, Job: job(1), Pool: unpriced, Budgets: []berth.BudgetStatus{b}}); p.Verdict != "now" || !strings.Contains(p.Warnings[0], "cannot count it") {
		t.Errorf("%+v", p)
	}
}

// A plan's verdict is what comes true: now means that the scheduler places the job, never that no
// state of the pool would, and whatever does not run says whose limit that is.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 5).Draw(t, "max")
		n := rapid.IntRange(0, most).Draw(t, "nodes")
		pool := cluster(most, n, rapid.IntRange(0, n).Draw(t, "busy"))
		for i := range rapid.IntRange(0, 4).Draw(t, "waiting") {
			pool.Waiting = append(pool.Waiting, sched.Gang{
				ID: fmt.Sprint("w", i), Nodes: rapid.IntRange(1, 6).Draw(t, "size"), User: rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "user"), Seq: int64(i + 1),
			})
		}
		if rapid.Bool().Draw(t, "bounded") {
			pool.Room, pool.Bound = rapid.IntRange(0, 2).Draw(t, "room"), berth.PlanLimit{Kind: berth.LimitQuota, Why: "quota"}
		}
		j := job(rapid.IntRange(1, 6).Draw(t, "asks"))
		p := plan.Make(plan.Snapshot{Now: now, Job: j, Pool: pool})
		switch p.Verdict {
		case berth.PlanNow, berth.PlanSoon:
			if len(p.Limits) > 0 {
				t.Errorf("it would run, and a limit is named: %+v", p.Limits)
			}
			if free := n - len(pool.Running); p.Verdict == berth.PlanNow && free < j.Nodes {
				t.Errorf("it would start now with %d nodes of %d free", free, j.Nodes)
			}
			if p.Verdict == berth.PlanSoon && (p.Boot < 1 || p.Boot > j.Nodes) {
				t.Errorf("soon, for %d nodes of %d", p.Boot, j.Nodes)
			}
		default:
			if len(p.Limits) == 0 || p.Reason == "" {
				t.Errorf("%s, and no limit is named: %+v", p.Verdict, p)
			}
		}
		if (p.Verdict == berth.PlanNever) != (j.Nodes > most) {
			t.Errorf("%d nodes on at most %d: %s", j.Nodes, most, p.Verdict)
		}
		if d := cmp.Diff(p, plan.Make(plan.Snapshot{Now: now, Job: j, Pool: pool})); d != "" {
			t.Errorf("not the same twice: %s", d)
		}
	})
}

func TestWhy(t *testing.T) {
	pool := wait(cluster(2, 2, 2), "w1", "w2")
	why, ahead, in, ok := plan.Why(pool, "w2", now)
	if why != "all 2 nodes of cpu are in use" || ahead != 1 || len(in) != 3 || !ok {
		t.Errorf("%q %d %v %v", why, ahead, in, ok)
	}
	pool = wait(cluster(2, 0, 0), "w1")
	pool.Short = "the quota is used up"
	if why, _, _, _ := plan.Why(pool, "w1", now); !strings.Contains(why, "the quota is used up") {
		t.Errorf("%q", why)
	}
}

// TestLeaving: who goes is what the autoscaler says, also while something waits that can never run.
func TestLeaving(t *testing.T) {
	pool := cluster(3, 3, 1)
	for i := range pool.Nodes[1:] {
		pool.Nodes[i+1].IdleSince = now.Add(time.Duration(-i) * time.Second)
	}
	leaving := func() map[string]time.Time { return plan.Leaving(pool, now) }
	both := map[string]time.Time{"n1": now.Add(pool.Idle), "n2": now.Add(pool.Idle - time.Second)}
	if d := cmp.Diff(both, leaving()); d != "" {
		t.Error(d)
	}
	pool.Waiting = []sched.Gang{{ID: "huge", Nodes: 4, User: "ann", Seq: 1}}
	if d := cmp.Diff(both, leaving()); d != "" {
		t.Errorf("with a gang that can never run: %s", d)
	}
	pool.Waiting[0].Nodes = 3
	if d := cmp.Diff(map[string]time.Time{}, leaving()); d != "" {
		t.Errorf("with one that needs them: %s", d)
	}
	pool.Waiting, pool.Min = nil, 2
	if d := cmp.Diff(map[string]time.Time{"n2": both["n2"]}, leaving()); d != "" {
		t.Errorf("with two to be kept: %s", d)
	}
}
