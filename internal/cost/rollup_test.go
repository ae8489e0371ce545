package cost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/store/pgtest"
)

// books is a workspace in a store.
type books struct {
	t  testing.TB
	db *store.DB
	ws string
}

func newBooks(t testing.TB, url string) books {
	t.Helper()
	db, err := store.Open(context.Background(), url, store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return books{t: t, db: db}.next("w")
}

// next is another workspace, in place of this one.
func (b books) next(name string) books {
	b.t.Helper()
	if b.ws != "" {
		err := b.db.Update(context.Background(), func(tx *store.Tx) error {
			return errors.Join(tx.DeleteWorkspace(b.ws), tx.Delete("", "workspaces", b.ws, ""))
		})
		if err != nil {
			b.t.Fatal(err)
		}
	}
	b.ws = name
	b.insert("", "workspaces", name, "", "{}", nil)
	return b
}

func sqlite(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "berth.db") }

func (b books) insert(workspace, kind, name, parent, body string, own any) {
	b.t.Helper()
	err := b.db.Update(context.Background(), func(tx *store.Tx) error { return insert(tx, workspace, kind, name, parent, body, own) })
	if err != nil {
		b.t.Fatal(err)
	}
}

func insert(tx *store.Tx, workspace, kind, name, parent, body string, own any) error {
	raw, err := json.Marshal(own)
	if err != nil {
		return err
	}
	return tx.Insert(&store.Doc{Workspace: workspace, Kind: kind, Name: name, Parent: parent, Body: json.RawMessage(body), Own: raw, Status: statusOf(kind)})
}

func statusOf(kind string) string {
	if kind == "jobs" {
		return string(berth.Running)
	}
	return ""
}

// write writes meters as the loops do: what has ended in the order in which it did, and the rest as
// nodes and tasks.
func (b books) write(meters []berth.Meter, now time.Time) {
	b.t.Helper()
	meters = slices.Clone(meters)
	slices.SortStableFunc(meters, func(a, b berth.Meter) int {
		if c := a.To.Compare(b.To); c != 0 || (a.Job == "") == (b.Job == "") {
			return c
		}
		if a.Job != "" {
			return -1
		}
		return 1
	})
	err := b.db.Update(context.Background(), func(tx *store.Tx) error {
		for i, m := range meters {
			var err error
			switch name := fmt.Sprintf("%s.%d", m.Job, i); {
			case !m.To.After(now) && m.Job != "":
				err = insert(tx, b.ws, "meters", name, "c", "{}", m)
			case !m.To.After(now):
				err = insert(tx, b.ws, "meters", m.Node, "c", "{}", m)
			case m.From.After(now):
			case m.Job == "":
				err = insert(tx, b.ws, "nodes", m.Node, "c", "{}", berth.Node{
					Name: m.Node, Workspace: b.ws, Compute: "c", Size: m.Size, Low: m.Low, Price: m.Rate, Priced: m.Priced, Currency: m.Currency, Slots: m.Slots, User: m.User,
					Created: m.From, Ready: m.From,
				})
			default:
				if _, err = tx.Get(b.ws, "jobs", m.Job, ""); berth.CodeOf(err) == berth.NotFound {
					err = insert(tx, b.ws, "jobs", m.Job, "", "{}", nil)
				}
				err = errors.Join(err, tx.InsertTask(&berth.Task{
					ID: berth.TaskID(name), Workspace: b.ws, Job: m.Job, Compute: "c", Node: m.Node, User: m.User, State: berth.TaskRunning, Attempt: i + 1,
					Times: berth.Waterfall{Placed: m.From},
				}))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// report is what is said of spending and of budgets, in whole days.
type report struct {
	Spending []berth.Spending
	Budgets  []berth.BudgetStatus
}

// report asks for everything that ends by now.
func (b books) report(now time.Time) (out report) {
	b.t.Helper()
	err := b.db.View(context.Background(), func(tx *store.Tx) error {
		for _, by := range [][]string{nil, {"user"}, {"job"}, {"user", "job", "compute", "size", "tier"}} {
			for _, days := range [][2]float64{{0, 6}, {1, 2}, {0, 1}, {2, 5}} {
				s, err := cost.Spending(tx, b.ws, berth.LocalTerms{}, by, cost.Window{Since: at(24 * days[0]), Until: at(24 * days[1])}, now)
				if err != nil {
					return err
				}
				out.Spending = append(out.Spending, s)
			}
		}
		accounts, err := cost.Accounts(tx, b.ws, berth.LocalTerms{}, now)
		for _, a := range accounts {
			s := a.BudgetStatus
			s.UsedUpAt = time.Time{}
			out.Budgets = append(out.Budgets, s)
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// forgetLedgers has budgets counted again from what is there.
func (b books) forgetLedgers() {
	b.t.Helper()
	err := b.db.Update(context.Background(), func(tx *store.Tx) error {
		docs, err := tx.All(store.Query{Workspace: b.ws, Kind: cost.Kind})
		for _, d := range docs {
			d.Own = nil
			err = errors.Join(err, tx.Save(d))
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// meters is how many there are.
func (b books) meters() (n int) {
	b.t.Helper()
	err := b.db.View(context.Background(), func(tx *store.Tx) error {
		docs, err := tx.All(store.Query{Workspace: b.ws, Kind: "meters"})
		n = len(docs)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// budgets makes budgets that go on from what they had counted, and one of another period than now.
func (b books) budgets() {
	b.t.Helper()
	err := b.db.Update(context.Background(), func(tx *store.Tx) error {
		for user, period := range map[string]string{"": berth.PeriodTotal, "bob": berth.PeriodTotal, "ann": berth.PeriodMonth} {
			v := berth.Budget{User: user, Amount: 1e6, Currency: "USD", Period: period}
			body, err := json.Marshal(v)
			if err != nil {
				return err
			}
			if err := tx.Insert(&store.Doc{Workspace: b.ws, Kind: cost.Kind, Name: v.Name(), Body: body, Created: at(-24)}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

var nearly = cmp.Options{cmpopts.EquateApprox(0, 1e-6), cmpopts.SortSlices(func(a, b berth.CostLine) bool {
	return fmt.Sprint(a.User, a.Job, a.Compute, a.Size, a.Tier, a.Currency) < fmt.Sprint(b.User, b.Job, b.Compute, b.Size, b.Tier, b.Currency)
})}

// Rolling up changes nothing of what is said of whole days, nor of budgets, whether they go on from
// what they had counted or count again, and however often it is done.
func TestRollUpLaws(t *testing.T) {
	b, n := newBooks(t, sqlite(t)), 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		b = b.next(fmt.Sprint("w", n))
		b.budgets()
		meters := drawMeters(rt)
		now := at(rapid.Float64Range(60, 110).Draw(rt, "now"))
		b.write(meters, now)
		before := b.report(now)
		was := b.meters()
		first := at(rapid.Float64Range(0, 110).Draw(rt, "first"))
		for _, day := range []time.Time{first, at(24 * 5)} {
			if day.After(now) {
				day = now
			}
			n, err := cost.RollUp(context.Background(), b.db, berth.LocalTerms{}, day)
			if err != nil {
				rt.Fatal(err)
			}
			if was -= n; b.meters() != was {
				rt.Fatalf("%d meters are left, want %d", b.meters(), was)
			}
			if d := cmp.Diff(before, b.report(now), nearly); d != "" {
				rt.Fatalf("rolled up before %s: %s", day, d)
			}
		}
		b.forgetLedgers()
		if d := cmp.Diff(before, b.report(now), nearly); d != "" {
			rt.Fatalf("counted again: %s", d)
		}
	})
}

func TestRollUp(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { rollUpMany(t, sqlite(t)) })
	t.Run("postgres", func(t *testing.T) {
		db, err := pgtest.Start("-F")
		pgtest.Need(t, err)
		defer db.Stop()
		rollUpMany(t, db.URL())
	})
}

// rollUpMany rolls up a node with more tasks than a transaction takes, one that lives, and the
// machine itself. It is interrupted many times.
func rollUpMany(t *testing.T, url string) {
	b := newBooks(t, url)
	b.budgets()
	now := at(24 * 6)
	meters := []berth.Meter{life("n1", "ann", 0, 90, 2), life("n2", "bob", 3, 999, 1)}
	for i := range 1500 {
		from := float64(i) * 0.05
		meters = append(meters, task("n1", fmt.Sprintf("j%d", i/100), "bob", from, from+0.045, 2))
		if i%10 == 0 {
			m := task("local", "here", "ann", from, from+0.01, 3)
			m.Compute = "local"
			meters = append(meters, m)
		}
	}
	meters = append(meters, task("n2", "long", "ann", 47, 50, 1), task("n2", "late", "ann", 100, 999, 1))
	b.write(meters, now)
	before := b.report(now)
	for i := 0; ; i++ {
		ctx, cancel := context.WithCancel(context.Background())
		var watch sync.WaitGroup
		rev := b.db.Rev()
		watch.Go(func() { // ends it after its first transaction
			for ctx.Err() == nil && b.db.Rev() == rev {
				runtime.Gosched()
			}
			cancel()
		})
		n, err := cost.RollUp(ctx, b.db, berth.LocalTerms{}, at(24*4))
		cancel()
		watch.Wait()
		if err == nil && n == 0 {
			break
		}
		if d := cmp.Diff(before, b.report(now), nearly); d != "" {
			t.Fatalf("after %d: %s", i, d)
		}
	}
	if n := b.meters(); n != 0 {
		t.Errorf("%d meters are left", n)
	}
}

// TestRollUpJob: what a job cost is known after its meters were rolled up, also in part.
func TestRollUpJob(t *testing.T) {
	b := newBooks(t, sqlite(t))
	m := task("n1", "a", "ann", 20, 50, 2)
	b.insert(b.ws, "nodes", "n1", "c", "{}", berth.Node{Name: "n1", Workspace: b.ws, Compute: "c", Price: 2, Priced: true, Currency: "USD", Created: at(0), Ready: at(0)})
	b.insert(b.ws, "meters", "a.1", "c", "{}", m)
	b.insert(b.ws, "meters", "b.1", "c", "{}", task("n1", "b", "ann", 1, 3, 2))
	a := &berth.Task{ID: "a.1", Workspace: b.ws, Job: "a", Compute: "c", Node: "n1", State: berth.TaskDone, Times: berth.Waterfall{Placed: m.From, Ended: m.To}}
	cost1 := func() (lines []berth.CostLine) {
		err := b.db.View(t.Context(), func(tx *store.Tx) error {
			meters, err := cost.Tasks(tx, b.ws, berth.LocalTerms{}, []*berth.Task{a}, at(100))
			lines = cost.Tally(meters, nil, cost.Window{Until: at(100)}).Totals
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return lines
	}
	want := []berth.CostLine{{Currency: "USD", CostSum: berth.CostSum{NodeHours: 30, Cost: 60}}}
	for _, day := range []float64{0, 24, 48, 72} {
		if _, err := cost.RollUp(t.Context(), b.db, berth.LocalTerms{}, at(day)); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, cost1(), nearly); d != "" {
			t.Errorf("rolled up before hour %g: %s", day, d)
		}
	}
	if n := b.meters(); n != 0 {
		t.Errorf("%d meters are left", n)
	}
}

// TestRollUpClock: when the clock is set, what is rolled up of a node that lives moves with it.
func TestRollUpClock(t *testing.T) {
	b := newBooks(t, sqlite(t))
	b.insert(b.ws, "nodes", "n1", "c", "{}", berth.Node{Name: "n1", Workspace: b.ws, Compute: "c", Price: 2, Priced: true, Currency: "USD", Created: at(0), Ready: at(0)})
	b.insert(b.ws, "meters", "a.1", "c", "{}", task("n1", "a", "ann", 20, 30, 2))
	if n, err := cost.RollUp(t.Context(), b.db, berth.LocalTerms{}, at(48)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	const year = 365 * 24
	err := b.db.Update(t.Context(), func(tx *store.Tx) error {
		d, err := tx.Get(b.ws, "nodes", "n1", "")
		if err != nil {
			return err
		}
		n, err := store.State[berth.Node](d)
		if err != nil {
			return err
		}
		n.Created = at(year)
		return errors.Join(store.SetState(d, n), tx.Save(d), cost.Shift(tx, b.ws, map[string]bool{"n1": true}, year*time.Hour))
	})
	if err != nil {
		t.Fatal(err)
	}
	err = b.db.View(t.Context(), func(tx *store.Tx) error {
		s, err := cost.Spending(tx, b.ws, berth.LocalTerms{}, nil, cost.Window{Since: at(0), Until: at(2 * year)}, at(year+60))
		want := []berth.CostLine{{Currency: "USD", CostSum: berth.CostSum{NodeHours: 10, Cost: 20}, Idle: berth.CostSum{NodeHours: 50, Cost: 100}}}
		if d := cmp.Diff(want, s.Totals, nearly); d != "" {
			t.Error(d)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
