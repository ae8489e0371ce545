package cost_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
)

var monthly = berth.Budget{Amount: 100, Currency: "USD", Period: berth.PeriodMonth}

func TestPeriod(t *testing.T) {
	made := time.Date(2026, 1, 17, 12, 0, 0, 0, time.UTC)
	zone := time.FixedZone("east", 5*3600)
	for _, tt := range []struct {
		period, now, from, to string
	}{
		{"month", "2026-02-28T23:59:59Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"},
		{"month", "2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"week", "2026-03-01T10:00:00Z", "2026-02-23T00:00:00Z", "2026-03-02T00:00:00Z"}, // a Sunday
		{"week", "2026-03-02T00:00:00Z", "2026-03-02T00:00:00Z", "2026-03-09T00:00:00Z"}, // a Monday
		{"total", "2026-03-02T00:00:00Z", "2026-01-17T12:00:00Z", "0001-01-01T00:00:00Z"},
	} {
		now, err := time.Parse(time.RFC3339, tt.now)
		if err != nil {
			t.Fatal(err)
		}
		for _, now := range []time.Time{now, now.In(zone)} {
			from, to := cost.Period(berth.Budget{Period: tt.period}, made, now)
			if from.Format(time.RFC3339) != tt.from || to.Format(time.RFC3339) != tt.to {
				t.Errorf("%s at %s: %s to %s, want %s to %s", tt.period, tt.now, from, to, tt.from, tt.to)
			}
		}
	}
}

func TestStand(t *testing.T) {
	l := cost.Ledger{From: at(0)}
	l.Add(monthly, task("n1", "a", "ann", -2, 1, 10)) // two hours of it were last month
	live := []berth.Meter{life("n1", "bob", -5, 3, 10), task("n1", "b", "bob", 2, 3, 10)}
	held := []cost.Held{{Job: "b", User: "bob", Currency: "USD", Amount: 40}, {Job: "c", User: "ann", Currency: "USD", Amount: 5}, {Job: "d", User: "ann", Currency: "EUR", Amount: 99}}
	s := cost.StatusOf(monthly, zero, l, live, held, at(3))
	if s.Spent != 30 || s.Rate != 10 || s.Reserved != 35 || s.Left != 35 || s.State != "ok" || !s.UsedUpAt.Equal(at(10).Add(time.Millisecond)) {
		t.Errorf("%+v", s)
	}
	bobs, anns := monthly, monthly
	bobs.User, anns.User = "Bob", "ann"
	// Bob pays for his job and for the hour that his node was idle, Ann for hers.
	his := cost.Ledger{From: at(0)}
	his.Add(bobs, task("n1", "a", "ann", -2, 1, 10))
	if s := cost.StatusOf(bobs, zero, his, live, held, at(3)); s.Spent != 20 || s.Rate != 10 || s.Reserved != 30 {
		t.Errorf("%+v", s)
	}
	mine := cost.Ledger{From: at(0)}
	mine.Add(anns, task("n1", "a", "ann", -2, 1, 10))
	if s := cost.StatusOf(anns, zero, mine, live, held, at(3)); s.Spent != 10 || s.Rate != 0 || s.Reserved != 5 || !s.UsedUpAt.IsZero() {
		t.Errorf("%+v", s)
	}
}

// What a budget counts does not depend on when it is read: reading meters as they come, or all at
// once, is the same, and is what the report of spending says.
func TestLedgerLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		meters := drawMeters(t)
		for i := range meters {
			meters[i].Priced = true
		}
		b := monthly
		b.User = rapid.SampledFrom([]string{"", "ann", "bob"}).Draw(t, "user")
		start, now := rapid.Float64Range(-1, 30).Draw(t, "start"), rapid.Float64Range(30, 110).Draw(t, "now")
		// What has ended is in the ledger, tasks before their nodes as they are written; the rest
		// is live.
		l := cost.Ledger{From: at(start)}
		var live []berth.Meter
		for _, ended := range []bool{true, false} {
			for _, m := range meters {
				switch {
				case m.From.After(at(now)), (m.Job != "") != ended:
				case m.To.After(at(now)):
					m.To = at(now)
					live = append(live, m)
				default:
					l.Add(b, m)
				}
			}
		}
		got := cost.StatusOf(b, zero, l, live, nil, at(now))
		want := 0.0
		for _, g := range cost.Tally(meters, []string{"user"}, cost.Window{Since: at(start), Until: at(now)}).Groups {
			if b.User == "" || g.User == b.User {
				want += g.Cost + g.Idle.Cost
			}
		}
		if !near(got.Spent, want) {
			t.Errorf("the budget says %v, the report %v", got.Spent, want)
		}
		for node := range l.Tasks {
			for _, m := range meters {
				if m.Node == node && m.Job == "" && !m.To.After(at(now)) {
					t.Errorf("node %s is gone and still in the ledger", node)
				}
			}
		}
	})
}

// At the time Next says, the share is spent; before it, it is not.
func TestNext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(0.01, 1000).Draw(t, "rate")
		b := berth.Budget{Amount: rapid.Float64Range(0.01, 1e6).Draw(t, "amount"), Currency: "USD", Period: berth.PeriodMonth}
		l := cost.Ledger{From: at(0)}
		stand := func(now time.Time) berth.BudgetStatus {
			m := life("n", "ann", 0, 0, rate)
			m.To = now
			return cost.StatusOf(b, zero, l, []berth.Meter{m}, nil, now)
		}
		now := at(rapid.Float64Range(0, 700).Draw(t, "now"))
		s := stand(now)
		l.Cross(s)
		next := cost.Next(s, now)
		if !next.After(now) {
			t.Fatalf("next is %s, now %s", next, now)
		}
		if next.Equal(s.To) {
			if warn, end := l.Cross(stand(next.Add(-time.Second))); warn || end {
				t.Errorf("nothing was due before the period's end, and it was crossed")
			}
			return
		}
		before := l
		if next.Sub(now) > time.Second {
			if warn, end := before.Cross(stand(next.Add(-500 * time.Millisecond))); warn || end {
				t.Errorf("crossed before it was due")
			}
		}
		if warn, end := l.Cross(stand(next)); !warn && !end {
			t.Errorf("nothing was crossed at %s: %+v", next, stand(next))
		}
	})
}

func TestCross(t *testing.T) {
	var l cost.Ledger
	step := func(spent, amount float64) string {
		var said []string
		warn, end := l.Cross(berth.BudgetStatus{Budget: berth.Budget{Amount: amount}, Spent: spent})
		if warn {
			said = append(said, "warn")
		}
		if end {
			said = append(said, "end")
		}
		return strings.Join(said, " ")
	}
	for i, tt := range []struct {
		spent, amount float64
		want          string
	}{{79, 100, ""}, {80, 100, "warn"}, {90, 100, ""}, {100, 100, "end"}, {120, 100, ""}, {120, 200, ""}, {160, 200, "warn"}, {0, 200, ""}, {500, 200, "warn end"}} {
		if got := step(tt.spent, tt.amount); got != tt.want {
			t.Errorf("%d: %v of %v: %q, want %q", i, tt.spent, tt.amount, got, tt.want)
		}
	}
}

func TestFits(t *testing.T) {
	s := berth.BudgetStatus{Budget: monthly, To: time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC), Spent: 60, Reserved: 20, Left: 20}
	ask := cost.Ask{Amount: 20, Priced: true, Currency: "USD", How: "2 nodes"}
	for _, tt := range []struct {
		spent float64
		ask   cost.Ask
		ok    bool
		why   string
	}{
		{60, ask, true, "the workspace's budget of 100.00 USD a month has 20.00 USD left, and the job reserves 20.00 USD (2 nodes)"},
		{60, cost.Ask{Amount: 20.5, Priced: true, Currency: "USD", How: "h"}, false, "the workspace's budget of 100.00 USD a month has 20.00 USD left, and the job reserves 20.50 USD (h); other jobs hold 20.00 USD until they end"},
		{60, cost.Ask{}, true, "the workspace's budget of 100.00 USD a month cannot count it: the price of the size is not known"},
		{60, cost.Ask{Amount: 1e9, Priced: true, Currency: "EUR"}, true, "the workspace's budget of 100.00 USD a month cannot count it: the size is priced in EUR"},
		{0, cost.Ask{Amount: 100.5, Priced: true, Currency: "USD", How: "h"}, false, "the job reserves 100.50 USD (h), more than the whole of the workspace's budget of 100.00 USD a month: lower its limits.timeout, or have the budget raised"},
		{100, cost.Ask{Amount: 100.5, Priced: true, Currency: "USD", How: "h"}, false, "the job reserves 100.50 USD (h), more than the whole of the workspace's budget of 100.00 USD a month: lower its limits.timeout, or have the budget raised"},
		{100, cost.Ask{}, false, "the workspace's budget of 100.00 USD a month is used up: 100.00 USD spent, and a new month begins on 2026-04-01"},
	} {
		s.Spent = tt.spent
		if ok, why := cost.Fits(s, tt.ask); ok != tt.ok || why != tt.why {
			t.Errorf("%v: %v %q, want %v %q", tt.spent, ok, why, tt.ok, tt.why)
		}
	}
}

func TestHold(t *testing.T) {
	h := cost.History{Runs: 3, P90: 2 * time.Hour}
	for _, tt := range []struct {
		limit time.Duration
		known bool
		want  time.Duration
	}{{time.Minute, true, time.Minute}, {0, true, 2 * time.Hour}, {0, false, time.Hour}} {
		if got, _ := cost.Hold(tt.limit, h, tt.known); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

func TestCheckBudget(t *testing.T) {
	if err := cost.CheckBudget(monthly); err != nil {
		t.Error(err)
	}
	for _, b := range []berth.Budget{
		{Amount: 0, Currency: "USD", Period: "month"},
		{Amount: -1, Currency: "USD", Period: "month"},
		{Amount: 1, Currency: "usd", Period: "month"},
		{Amount: 1, Currency: "USD", Period: "year"},
		{Amount: 1, Period: "week"},
	} {
		if cost.CheckBudget(b) == nil {
			t.Errorf("%+v is accepted", b)
		}
	}
}

func TestMoney(t *testing.T) {
	for amount, want := range map[float64]string{12.345: "12.35 USD", 0: "0.00 USD", 0.0123: "0.012 USD", 0.0000012: "<0.0001 USD", -3: "-3.00 USD"} {
		if d := cmp.Diff(want, cost.Money(amount, "USD")); d != "" {
			t.Error(d)
		}
	}
}
