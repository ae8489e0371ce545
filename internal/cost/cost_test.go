package cost_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
)

var zero = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

func at(hours float64) time.Time { return zero.Add(time.Duration(hours * float64(time.Hour))) }

func life(node, user string, from, to, rate float64) berth.Meter {
	return berth.Meter{Compute: "c", Node: node, Size: "S", Rate: rate, Priced: true, Currency: "USD", User: user, From: at(from), To: at(to)}
}

func task(node, job, user string, from, to, rate float64) berth.Meter {
	m := life(node, user, from, to, rate)
	m.Job = job
	return m
}

func TestTally(t *testing.T) {
	meters := []berth.Meter{
		life("n1", "ann", 0, 10, 2), task("n1", "a", "ann", 1, 4, 2), task("n1", "b", "bob", 5, 8, 2),
		life("n2", "bob", 0, 4, 2), // idle all its life
	}
	got := cost.Tally(meters, []string{"user", "job"}, cost.Window{Since: at(0), Until: at(10)})
	want := []berth.CostLine{
		{User: "ann", Currency: "USD", Idle: berth.CostSum{NodeHours: 4, Cost: 8}},
		{User: "bob", Currency: "USD", Idle: berth.CostSum{NodeHours: 4, Cost: 8}},
		{User: "ann", Job: "a", Currency: "USD", CostSum: berth.CostSum{NodeHours: 3, Cost: 6}},
		{User: "bob", Job: "b", Currency: "USD", CostSum: berth.CostSum{NodeHours: 3, Cost: 6}},
	}
	if d := cmp.Diff(want, got.Groups); d != "" {
		t.Error(d)
	}
	total := []berth.CostLine{{Currency: "USD", CostSum: berth.CostSum{NodeHours: 6, Cost: 12}, Idle: berth.CostSum{NodeHours: 8, Cost: 16}}}
	if d := cmp.Diff(total, got.Totals); d != "" {
		t.Error(d)
	}
	got = cost.Tally(meters, []string{"compute", "tier"}, cost.Window{Since: at(3), Until: at(6)})
	want = []berth.CostLine{{Compute: "c", Tier: "dedicated", Currency: "USD", CostSum: berth.CostSum{NodeHours: 2, Cost: 4}, Idle: berth.CostSum{NodeHours: 2, Cost: 4}}}
	if d := cmp.Diff(want, got.Groups); d != "" {
		t.Errorf("clipped: %s", d)
	}
}

// A price nobody knows is hours, never 0; another currency is another line.
func TestTallyUnknown(t *testing.T) {
	free := life("n1", "ann", 0, 2, 0)
	free.Priced, free.Currency = false, ""
	euro := life("n2", "ann", 0, 2, 3)
	euro.Currency = "EUR"
	euro.Instance = true // somebody's own: not idle
	got := cost.Tally([]berth.Meter{free, euro, life("n3", "ann", 0, 1, 5)}, nil, cost.Window{Since: at(0), Until: at(9)})
	want := []berth.CostLine{
		{Currency: "EUR", CostSum: berth.CostSum{NodeHours: 2, Cost: 6}, Idle: berth.CostSum{NodeHours: 2, Unknown: 2}},
		{Currency: "USD", Idle: berth.CostSum{NodeHours: 1, Cost: 5}},
	}
	if d := cmp.Diff(want, got.Totals); d != "" {
		t.Error(d)
	}
	alone := cost.Tally([]berth.Meter{free}, []string{"size"}, cost.Window{Since: at(0), Until: at(1)})
	if d := cmp.Diff([]berth.CostLine{{Size: "S", Idle: berth.CostSum{NodeHours: 1, Unknown: 1}}}, alone.Groups); d != "" {
		t.Error(d)
	}
}

func TestCheckKeys(t *testing.T) {
	if err := cost.CheckKeys([]string{"user", "tier"}); err != nil {
		t.Error(err)
	}
	for _, by := range [][]string{{"colour"}, {"user", "user"}, {""}} {
		if cost.CheckKeys(by) == nil {
			t.Errorf("%q is accepted", by)
		}
	}
}

// drawMeters are nodes with tasks on them that never overlap more than the node has slots.
func drawMeters(t *rapid.T) []berth.Meter {
	var out []berth.Meter
	for range rapid.IntRange(0, 4).Draw(t, "nodes") {
		from := rapid.Float64Range(0, 50).Draw(t, "from")
		to := from + rapid.Float64Range(0, 50).Draw(t, "life")
		slots := rapid.IntRange(1, 3).Draw(t, "slots")
		rate := float64(rapid.IntRange(0, 9).Draw(t, "rate"))
		name := rapid.StringMatching("[a-z]{12}").Draw(t, "node")
		n := life(name, rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "owner"), from, to, rate)
		n.Slots, n.Priced = slots, rapid.Bool().Draw(t, "priced")
		n.Low = rapid.Bool().Draw(t, "low")
		out = append(out, n)
		for range slots {
			for at := from; at < to; {
				start := at + rapid.Float64Range(0, 20).Draw(t, "gap")
				end := start + rapid.Float64Range(0.01, 20).Draw(t, "run")
				if end > to {
					break
				}
				m := task(name, rapid.StringMatching("j[0-9]").Draw(t, "job"), rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "user"), start, end, rate/float64(slots))
				m.Slots, m.Priced, m.Low = slots, n.Priced, n.Low
				out = append(out, m)
				at = end
			}
		}
	}
	return out
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

func sum(lines []berth.CostLine) (s [6]float64) {
	for _, l := range lines {
		for i, v := range []float64{l.NodeHours, l.Cost, l.Unknown, l.Idle.NodeHours, l.Idle.Cost, l.Idle.Unknown} {
			s[i] += v
		}
	}
	return s
}

func TestTallyLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		meters := drawMeters(t)
		by := rapid.SampledFrom([][]string{nil, {"user"}, {"job"}, {"compute"}, {"user", "job", "compute"}, {"size", "tier"}}).Draw(t, "by")
		cuts := []float64{rapid.Float64Range(-5, 40).Draw(t, "a"), rapid.Float64Range(40, 60).Draw(t, "b"), rapid.Float64Range(60, 140).Draw(t, "c")}
		whole := cost.Tally(meters, by, cost.Window{Since: at(cuts[0]), Until: at(cuts[2])})
		groups, totals := sum(whole.Groups), sum(whole.Totals)
		early := sum(cost.Tally(meters, by, cost.Window{Since: at(cuts[0]), Until: at(cuts[1])}).Groups)
		late := sum(cost.Tally(meters, by, cost.Window{Since: at(cuts[1]), Until: at(cuts[2])}).Groups)
		var lives, paid float64
		for _, m := range meters {
			if m.Job == "" {
				from, to := max(m.From.Sub(zero).Hours(), cuts[0]), min(m.To.Sub(zero).Hours(), cuts[2])
				lives += max(0, to-from)
				if m.Priced {
					paid += max(0, to-from) * m.Rate
				}
			}
		}
		for i := range groups {
			if !near(groups[i], totals[i]) {
				t.Errorf("groups make %v, totals %v", groups, totals)
			}
			if !near(groups[i], early[i]+late[i]) {
				t.Errorf("the parts make %v and %v, the whole %v", early, late, groups)
			}
			if groups[i] < 0 {
				t.Errorf("less than nothing: %v", groups)
			}
		}
		if !near(groups[0]+groups[3], lives) || !near(groups[1]+groups[4], paid) {
			t.Errorf("nodes lived %v hours for %v; told apart that is %v", lives, paid, groups)
		}
	})
}

// Whatever was written down, idle time is never less than none, and tasks do not reach beyond their
// nodes.
func TestTallyBadMeters(t *testing.T) {
	got := cost.Tally([]berth.Meter{life("n", "ann", 2, 4, 1), task("n", "a", "ann", 0, 9, 1), task("n", "b", "ann", 3, 4, 1)}, nil, cost.Window{Since: at(0), Until: at(20)})
	if d := cmp.Diff([]berth.CostLine{{Currency: "USD", CostSum: berth.CostSum{NodeHours: 3, Cost: 3}}}, got.Totals); d != "" {
		t.Error(d)
	}
}

func TestLike(t *testing.T) {
	run := func(command, display string, took time.Duration) cost.Run {
		return cost.Run{Experiment: "e", Command: command, Display: display, Took: took, Cost: took.Hours(), Priced: true}
	}
	runs := []cost.Run{
		run("train", "x", 4*time.Hour), run("train", "x", 1*time.Hour), run("train", "y", 3*time.Hour), run("train", "y", 2*time.Hour),
		run("score", "y", 10*time.Hour),
		{Experiment: "other", Command: "train", Took: 99 * time.Hour},
		{Experiment: "Default", Command: "x", Took: time.Hour},
		{Experiment: "e", Command: "train"},
	}
	for _, tt := range []struct {
		job  cost.Run
		want cost.History
		ok   bool
	}{
		{cost.Run{Experiment: "E", Command: "train"}, cost.History{Of: "command", Runs: 4, Median: 150 * time.Minute, P90: 4 * time.Hour, Cost: 2.5, Priced: true}, true},
		{cost.Run{Experiment: "e", Command: "new", Display: "Y"}, cost.History{Of: "display name", Runs: 3, Median: 3 * time.Hour, P90: 10 * time.Hour, Cost: 5, Priced: true}, true},
		{cost.Run{Experiment: "e", Command: "new"}, cost.History{Of: "experiment", Runs: 5, Median: 3 * time.Hour, P90: 10 * time.Hour, Cost: 4, Priced: true}, true},
		{cost.Run{Experiment: "none", Command: "train"}, cost.History{}, false},
		{cost.Run{Experiment: "default", Command: "new"}, cost.History{}, false},
	} {
		got, ok := cost.HistoryOf(tt.job, runs)
		if d := cmp.Diff(tt.want, got); d != "" || ok != tt.ok {
			t.Errorf("%+v: %v %s", tt.job, ok, d)
		}
	}
}
