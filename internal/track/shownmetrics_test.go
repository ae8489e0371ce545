package track_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestSearchShowsFewMetrics: a search may ask for few metrics of each run, by number or by key, and
// says how many there are.
func TestSearchShowsFewMetrics(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	for _, part := range []int{0, 400} {
		var metrics []obj
		for i := range 400 {
			metrics = append(metrics, obj{"key": fmt.Sprintf("m%03d", (part+i)*7%800), "value": i, "timestamp": 1})
		}
		s.must("POST", "runs/log-batch", obj{"run_id": run, "metrics": metrics})
	}
	for _, c := range []struct {
		q     obj
		want  string
		count any
	}{
		{obj{"berth_max_metrics": 3}, "m000 m001 m002", 800.0},
		{obj{"berth_max_metrics": 0}, "", 800.0},
		{obj{"berth_metric_keys": []string{"m700", "none", "m007", "m700"}}, "m007 m700", nil},
		{obj{"berth_metric_keys": []string{}}, "", nil},
	} {
		c.q["experiment_ids"] = []string{"0"}
		got := s.must("POST", "runs/search", c.q)
		var keys []string
		list, _ := at(got, "runs", 0, "data", "metrics").([]any)
		for _, m := range list {
			keys = append(keys, at(m, "key").(string))
		}
		if count := at(got, "runs", 0, "data", "berth_metric_count"); strings.Join(keys, " ") != c.want || fmt.Sprint(count) != fmt.Sprint(c.count) {
			t.Errorf("%v: %q of %v, want %q of %v", c.q, keys, count, c.want, c.count)
		}
	}
	for _, most := range []int{800, 1 << 40} {
		got := s.must("POST", "runs/search", obj{"experiment_ids": []string{"0"}, "berth_max_metrics": most})
		if n := len(at(got, "runs", 0, "data", "metrics").([]any)); n != 800 || at(got, "runs", 0, "data", "berth_metric_count") != nil {
			t.Errorf("at most %d are %d", most, n)
		}
	}
	s.want(400, "POST", "runs/search", obj{"berth_max_metrics": -1})
	s.want(400, "POST", "runs/search", obj{"berth_max_metrics": 1, "berth_metric_keys": []string{"a"}})
	var keys []string
	for i := range 101 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	s.want(400, "POST", "runs/search", obj{"berth_metric_keys": keys})
}
