package metrics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth/internal/metrics"
)

func TestWriter(t *testing.T) {
	w := &metrics.Writer{}
	w.Begin("a_total", metrics.Counter, "What\nis \\ counted.")
	w.Sample("a_total", 3, "x", "say \"hi\"\n\\", "y", "2")
	w.One("b", metrics.Gauge, "One.", 0.25)
	want := "# HELP a_total What\\nis \\\\ counted.\n# TYPE a_total counter\na_total{x=\"say \\\"hi\\\"\\n\\\\\",y=\"2\"} 3\n# HELP b One.\n# TYPE b gauge\nb 0.25\n"
	if w.String() != want {
		t.Errorf("%s\nwant\n%s", w, want)
	}
}

func TestHistogram(t *testing.T) {
	var h metrics.Histogram
	for _, d := range []time.Duration{-time.Second, 500 * time.Microsecond, time.Millisecond + 1, time.Hour} {
		h.Observe(d)
	}
	w := &metrics.Writer{}
	w.Histogram("h", &h, "of", "x")
	for _, want := range []string{
		`h_bucket{of="x",le="0.0005"} 2`, `h_bucket{of="x",le="0.001"} 2`, `h_bucket{of="x",le="0.0025"} 3`, `h_bucket{of="x",le="60"} 3`,
		`h_bucket{of="x",le="+Inf"} 4`, `h_sum{of="x"} 3600.001500001`, `h_count{of="x"} 4`,
	} {
		if !strings.Contains(w.String(), want+"\n") {
			t.Errorf("%s is missing in\n%s", want, w)
		}
	}
}

func TestAges(t *testing.T) {
	var a metrics.Ages
	for _, d := range []time.Duration{-time.Minute, time.Second, 2 * time.Minute, 48 * time.Hour} {
		a.Add(d)
	}
	w := &metrics.Writer{}
	w.Ages("q", &a, "jobs that wait")
	for _, want := range []string{"q_count 4", "q_oldest_seconds 172800", `q_up_to{seconds="1"} 2`, `q_up_to{seconds="300"} 3`, `q_up_to{seconds="86400"} 3`} {
		if !strings.Contains(w.String(), want+"\n") {
			t.Errorf("%s is missing in\n%s", want, w)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	var h metrics.Histogram
	b.ReportAllocs()
	for b.Loop() {
		h.Observe(3 * time.Millisecond)
	}
}
