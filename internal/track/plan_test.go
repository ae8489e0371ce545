package track

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track/points"
)

// indexed is an index with points, changed at random.
type indexed struct {
	x    *index
	p    *points.Set
	w    *workspace
	rand *rand.Rand
	ids  []string
	made int
}

func newIndexed(t *testing.T, seed uint64) *indexed {
	t.Helper()
	p, err := points.Open(t.TempDir(), points.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	x := newIndex()
	return &indexed{x: x, p: p, w: &workspace{index: x, points: p}, rand: rand.New(rand.NewPCG(seed, 1))}
}

func (i *indexed) pick(l ...string) string { return l[i.rand.IntN(len(l))] }

// put makes a run or changes one.
func (i *indexed) put() {
	r := &run{Stage: i.pick(active, active, active, deleted), Status: i.pick(running, finished), Name: i.pick("a", "b", "ab", "B", ""), Experiment: "0"}
	if len(i.ids) > 0 && i.rand.IntN(3) == 0 {
		old := i.x.run(i.ids[i.rand.IntN(len(i.ids))])
		r.ID, r.Experiment, r.Start, r.User = old.ID, old.Experiment, old.Start, old.User
		if i.rand.IntN(50) == 0 { // a job that was deleted and submitted again
			r.Start++
		}
	} else {
		i.made++
		r.ID, r.Experiment, r.Start = fmt.Sprintf("r%05d", i.rand.IntN(1e5)*10+i.made%10), i.pick("0", "0", "0", "1", "2"), int64(i.rand.IntN(40))
		if i.x.run(r.ID) != nil {
			return
		}
		i.ids = append(i.ids, r.ID)
	}
	if i.rand.IntN(2) == 0 {
		end := int64(i.rand.IntN(30))
		r.End = &end
	}
	if i.rand.IntN(4) > 0 {
		r.Params = map[string]string{"lr": i.pick("1", "10", "2", "x", "")}
	}
	if i.rand.IntN(10) == 0 {
		r.Tags = map[string]string{"team": i.pick("red", "blue", "reddish")}
	}
	r.doc = &store.Doc{}
	i.x.put(r)
}

func (i *indexed) log(t *testing.T) {
	t.Helper()
	if len(i.ids) == 0 {
		return
	}
	v := []float64{0, math.Copysign(0, -1), 1, 2, 0.5, math.NaN(), math.Inf(1), math.Inf(-1), float64(i.rand.IntN(20)) / 4}
	e := points.Entry{Owner: i.ids[i.rand.IntN(len(i.ids))], Key: i.pick("acc", "acc", "loss"), Point: points.Point{
		Timestamp: int64(i.rand.IntN(9)), Step: int64(i.rand.IntN(9)), Value: v[i.rand.IntN(len(v))],
	}}
	if err := i.p.Append([]points.Entry{e}); err != nil {
		t.Fatal(err)
	}
}

func (i *indexed) drop() {
	if len(i.ids) > 0 {
		k := i.rand.IntN(len(i.ids))
		i.x.removeRun(i.x.runs[i.ids[k]])
		i.ids = slices.Delete(i.ids, k, k+1)
	}
}

// search makes a search up.
func (i *indexed) search(t *testing.T) *search {
	t.Helper()
	clauses := []string{
		"metrics.acc > 0.5", "metrics.acc <= 1", "metrics.acc = 0", "metrics.acc != 2", "metrics.loss >= 1", "metrics.none < 3", "params.lr = '1'",
		"params.lr != '1'", "params.lr LIKE '1%'", "params.lr LIKE '%0'", "params.lr ILIKE 'X'", "params.lr IS NULL", "params.lr IS NOT NULL",
		"tags.team = 'red'", "tags.team LIKE 'red%'", "tags.team IS NULL", "status = 'FINISHED'", "start_time > 20", "start_time <= 9", "start_time != 4", "end_time < 3",
		"run_name LIKE 'a%'", "attributes.run_id IN ('" + i.pick(append(i.ids, "none")...) + "', 'none')", "run_id != 'none'",
	}
	orders := []string{
		"metrics.acc DESC", "metrics.acc", "metrics.loss DESC", "metrics.none", "params.lr", "params.lr DESC", "tags.team DESC", "start_time ASC",
		"end_time DESC", "run_name", "status DESC", "experiment_id", "run_id DESC",
	}
	var filter, by []string
	for range i.rand.IntN(5) {
		filter = append(filter, i.pick(clauses...))
	}
	for range i.rand.IntN(4) {
		if o := i.pick(orders...); !slices.ContainsFunc(by, func(b string) bool { return strings.Fields(b)[0] == strings.Fields(o)[0] }) {
			by = append(by, o)
		}
	}
	s := &search{ctx: t.Context(), limit: []int{1, 5, 50, 1000}[i.rand.IntN(4)], from: []int{0, 0, 7}[i.rand.IntN(3)], query: strings.Join(filter, " AND ") + " by " + strings.Join(by, ", ")}
	var err error
	if s.clauses, err = runGrammar.parse(strings.Join(filter, " AND ")); err != nil {
		t.Fatal(err)
	}
	if s.orders, err = runGrammar.parseOrders(by); err != nil {
		t.Fatal(err)
	}
	return s
}

// scanned is what a search finds by looking at every run.
func (i *indexed) scanned(ids []string, s *search, shown func(string) bool) []string {
	var found []*run
	for _, n := range i.x.runs {
		if slices.Contains(ids, n.r.Experiment) && shown(n.r.Stage) {
			i.p.View(func(v points.View) {
				if s.meets(func(k *clause) bool { return n.r.matches(k, v.Latest) }) {
					found = append(found, n.r)
				}
			})
		}
	}
	slices.SortFunc(found, compareRuns)
	i.p.View(func(v points.View) {
		found = sortBy(found, s.orders, func(r *run, o order) rank { return r.rank(o, v.Latest) })
	})
	return runIDs(found[:min(len(found), s.enough())])
}

func runIDs(runs []*run) []string {
	out := make([]string, len(runs))
	for i, r := range runs {
		out[i] = r.ID
	}
	return out
}

// TestSearchFindsWhatAScanFinds: whatever is asked, and however runs changed before, the columns
// lead to the same runs in the same order as looking at all of them.
func TestSearchFindsWhatAScanFinds(t *testing.T) {
	for seed := range uint64(6) {
		i := newIndexed(t, seed)
		for range 1500 {
			switch n := i.rand.IntN(100); {
			case n < 45:
				i.put()
			case n < 80:
				i.log(t)
			case n < 81:
				i.drop()
			default:
				s, ids := i.search(t), [][]string{{"0"}, {"1"}, {"0", "1", "2", "none"}}[i.rand.IntN(3)]
				shown := func(stage string) bool { return stage == active }
				got := runIDs((&call{workspace: i.w, ctx: t.Context()}).selectRuns(ids, s, shown))
				if want := i.scanned(ids, s, shown); !slices.Equal(got, want) {
					t.Fatalf("seed %d, %d runs, %v, %s, %d from %d:\n got %v\nwant %v", seed, len(i.ids), ids, s.query, s.limit, s.from, got, want)
				}
			}
		}
	}
}

// TestSearchLooksAtFewRuns: a condition that few runs meet, and an order of which the first are
// wanted, are answered without looking at the others.
func TestSearchLooksAtFewRuns(t *testing.T) {
	i := newIndexed(t, 1)
	const runs = 20_000
	var batch []points.Entry
	for n := range runs {
		r := &run{ID: fmt.Sprint("r", n), Experiment: "0", Stage: active, Start: int64(n), Params: map[string]string{"lr": fmt.Sprint(n % 1000)}}
		if n%7000 != 6999 {
			r.Tags = map[string]string{"odd": "yes"}
		}
		if n%9000 == 8999 {
			r.Tags["odd"] = "no"
		}
		r.doc = &store.Doc{}
		i.x.put(r)
		batch = append(batch, points.Entry{Owner: r.ID, Key: "acc", Point: points.Point{Value: float64(n*7919%runs) / runs}})
	}
	if err := i.p.Append(batch); err != nil {
		t.Fatal(err)
	}
	for _, q := range []struct {
		filter, order string
		found, most   int
	}{
		{"", "metrics.acc DESC", 21, 21},
		{"", "params.lr", 21, 21},
		{"params.lr = '3'", "metrics.acc DESC", 20, 20},
		{"metrics.acc > 0.9 AND params.lr = '3'", "", 2, 20},
		{"metrics.acc < 0.001", "", 20, 20},
		{"metrics.acc < 0.001 AND params.lr = 'none'", "metrics.acc", 0, 0},
		{"params.lr LIKE '99%'", "", 21, 400},
		{"attributes.run_id = 'r7'", "metrics.acc", 1, 1},
		{"params.lr = '3' AND params.lr = '4'", "metrics.acc", 0, 20},
		{"metrics.acc > 0.5 AND metrics.acc < 0.5", "params.lr", 0, 0},
		{"metrics.acc > 0.5 AND metrics.acc <= 0.5005", "", 10, 10},
		{"metrics.acc < 0.1", "metrics.acc DESC", 21, 21},
		{"metrics.acc > 0.9", "metrics.acc", 21, 21},
		{"params.lr != 'none' AND metrics.acc < 0.1", "metrics.acc DESC", 21, 21},
		{"start_time < 1000", "", 21, 21},
		{"", "tags.odd DESC, metrics.acc DESC", 21, 21 + 2},
		{"", "tags.odd, metrics.acc", 21, 21 + 4},
		{"params.lr LIKE '9%'", "tags.odd DESC, metrics.acc DESC", 21, 1000},
		{"", "metrics.none, tags.odd, metrics.acc", 21, 25},
		{"params.lr IS NULL", "", 0, 0},
		{"tags.odd IS NULL", "metrics.acc DESC", 2, 2},
		{"tags.odd IS NOT NULL", "", 21, 24},
		{"tags.odd != 'yes'", "start_time", 2, 2},
		{"metrics.acc > 0.8 AND params.lr ILIKE '3'", "start_time", 4, 13_000},
	} {
		s := &search{limit: 20}
		s.clauses, _ = runGrammar.parse(q.filter)
		if q.order != "" {
			s.orders, _ = runGrammar.parseOrders(strings.Split(q.order, ", "))
		}
		i.w.prepare(t.Context(), []string{"0"}, s.fields())
		s.screen = (&call{ctx: t.Context()}).newScreen(s)
		looked := 0
		var got []*run
		i.p.View(func(v points.View) {
			got = i.x.find([]string{"0"}, s, v, func(string) bool { looked++; return true })
		})
		if len(got) != q.found || looked > q.most {
			t.Errorf("%q by %q: looked at %d runs (at most %d) and found %d (want %d)", q.filter, q.order, looked, q.most, len(got), q.found)
		}
	}
}

// TestUnknownFieldsAreForgotten: searches for what no run has leave the columns of what they have
// alone, and nothing behind.
func TestUnknownFieldsAreForgotten(t *testing.T) {
	i := newIndexed(t, 1)
	for n := range 2 * fewRuns {
		r := &run{ID: fmt.Sprint("r", n), Experiment: "0", Stage: active, Params: map[string]string{"lr": "1"}}
		r.doc = &store.Doc{}
		i.x.put(r)
		if err := i.p.Append([]points.Entry{{Owner: r.ID, Key: "acc", Point: points.Point{Value: 1}}}); err != nil {
			t.Fatal(err)
		}
	}
	known := []field{{of: metricOfRun, key: "acc"}, {of: paramOfRun, key: "lr"}}
	for n := range mostFields + 44 {
		i.w.prepare(t.Context(), []string{"0"}, []field{{of: metricOfRun, key: fmt.Sprint("none", n)}})
		i.w.prepare(t.Context(), []string{"0"}, []field{{of: tagOf, key: fmt.Sprint("none", n)}})
		if n == 0 {
			i.w.prepare(t.Context(), []string{"0"}, known)
		}
		if n%100 == 50 {
			i.w.prepare(t.Context(), []string{"0"}, known)
		}
	}
	for _, f := range known {
		if col := i.x.columns.of["0"][f]; col == nil || col.len() != 2*fewRuns {
			t.Errorf("the column of %s is %v", f.key, col)
		}
	}
	if n, m := len(i.x.columns.used), len(i.x.columns.metrics); n > mostFields || m > mostFields {
		t.Errorf("%d fields and %d metrics are remembered", n, m)
	}
}

// TestColumnsKeepNoRequest: what a search leaves does not keep its text.
func TestColumnsKeepNoRequest(t *testing.T) {
	i := newIndexed(t, 1)
	for range 4 * fewRuns {
		i.put()
	}
	filter := "metrics.lossparams.lr" + strings.Repeat(" ", 1<<10)
	inside := func(key string) bool {
		at, from := uintptr(unsafe.Pointer(unsafe.StringData(key))), uintptr(unsafe.Pointer(unsafe.StringData(filter)))
		return from <= at && at < from+uintptr(len(filter))
	}
	fields := []field{{of: metricOfRun, key: filter[8:12]}, {of: paramOfRun, key: filter[19:21]}}
	for range 2 { // the second time the fields are there
		i.w.prepare(t.Context(), []string{"0"}, fields)
	}
	c := i.x.columns
	if len(c.used) != 2 || len(c.metrics) != 1 || len(c.of["0"]) != 1 {
		t.Fatal(c.used, c.metrics, c.of)
	}
	for f := range c.used {
		if inside(f.key) {
			t.Errorf("the place of %v is in the request", f)
		}
	}
	for key := range c.metrics {
		if inside(key) {
			t.Errorf("the metric %s is in the request", key)
		}
	}
	for f := range c.of["0"] {
		if inside(f.key) {
			t.Errorf("the column of %v is in the request", f)
		}
	}
}
