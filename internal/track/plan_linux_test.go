package track

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track/points"
)

// cpuTime is what this process has used, which other processes of a busy machine do not change.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSearchMany is searches for 20 runs among many, with 10 metrics, parameters and tags
// each.
func BenchmarkSearchMany(b *testing.B) {
	for _, runs := range []int{10_000, 200_000, 1_000_000} {
		if runs > 200_000 && os.Getenv("BERTH_LONG") == "" {
			continue
		}
		p, err := points.Open(b.TempDir(), points.Options{NoSync: true})
		if err != nil {
			b.Fatal(err)
		}
		x := newIndex()
		for n := range runs {
			r := &run{ID: fmt.Sprintf("r%08d", n), Experiment: "0", Stage: active, Start: int64(n), Params: map[string]string{}, Tags: map[string]string{}}
			batch := make([]points.Entry, 10)
			for k := range 10 {
				v := (n*7919 + k*104729) % runs
				r.Params[fmt.Sprint("p", k)], r.Tags[fmt.Sprint("t", k)] = fmt.Sprint(v%100), fmt.Sprint(v%1000)
				batch[k] = points.Entry{Owner: r.ID, Key: fmt.Sprint("m", k), Point: points.Point{Value: float64(v) / float64(runs)}}
			}
			r.doc = &store.Doc{}
			x.put(r)
			if err := p.Append(batch); err != nil {
				b.Fatal(err)
			}
		}
		c := &call{workspace: &workspace{index: x, points: p}, ctx: b.Context()}
		for _, q := range [][2]string{
			{"metrics.m1 > 0.9 AND params.p3 = '7'", ""},
			{"params.p1 = '3'", "metrics.m2 DESC"},
			{"", "metrics.m0 DESC"},
			{"", "params.p5"},
			{"tags.t1 = '17' AND metrics.m1 < 0.5", "metrics.m3"},
			{"tags.t1 LIKE '%9' AND metrics.m1 < 0.5", "metrics.m3"},
		} {
			s := &search{limit: 20}
			s.clauses, _ = runGrammar.parse(q[0])
			if q[1] != "" {
				s.orders, _ = runGrammar.parseOrders([]string{q[1]})
			}
			b.Run(fmt.Sprintf("%d/%s/%s", runs, q[0], q[1]), func(b *testing.B) {
				shown := func(stage string) bool { return stage == active }
				began := cpuTime(b)
				c.selectRuns([]string{"0"}, s, shown)
				b.ReportMetric(float64((cpuTime(b)-began).Microseconds())/1000, "cpu-ms-first")
				began = cpuTime(b)
				var took []time.Duration
				for b.Loop() {
					began := time.Now()
					c.selectRuns([]string{"0"}, s, shown)
					took = append(took, time.Since(began))
				}
				b.ReportMetric(float64((cpuTime(b)-began).Nanoseconds())/1000/float64(len(took)), "cpu-µs/op")
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "p50-µs")
			})
		}
		p.Close()
	}
}
