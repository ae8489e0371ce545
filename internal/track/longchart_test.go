package track_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLongChartFollows: a chart of a long series is kept, and is another one after each point. It
// is the same as one that is made anew.
func TestLongChartFollows(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	run, _ := at(s.must("POST", "runs/create", obj{"experiment_id": "0", "start_time": 1}), "run", "info", "run_id").(string)
	log := func(from, to int) {
		t.Helper()
		var p strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&p, `,{"key": "m", "value": %d, "timestamp": %d, "step": %d}`, i%97, i, i)
		}
		s.must("POST", "runs/log-batch", `{"run_id": "`+run+`", "metrics": [`+p.String()[1:]+`]}`)
	}
	for i := range 12 {
		log(1000*i, 1000*i+1000)
	}
	chart := func(how string) obj {
		t.Helper()
		return s.must("GET", "metrics/get-history-bulk-interval?metric_key=m&max_results=100&run_ids="+run+how, nil)
	}
	for n := 12000; n < 12003; n++ {
		for _, how := range []string{"", "&sampling=minmax"} {
			got := chart(how)
			if diff := cmp.Diff(got, chart(how)); diff != "" {
				t.Fatalf("%d points: asked again (-first +second):\n%s", n, diff)
			}
			all, _ := got["metrics"].([]any)
			if last := at(all[len(all)-1], "step"); fmt.Sprint(last) != fmt.Sprint(n-1) {
				t.Fatalf("%d points: the chart ends with step %v", n, last)
			}
			s.stop()
			s = start(t, dir)
			if diff := cmp.Diff(got, chart(how)); diff != "" {
				t.Fatalf("%d points: of another process (-first +second):\n%s", n, diff)
			}
		}
		chart("") // kept before the next point comes
		log(n, n+1)
	}
}
