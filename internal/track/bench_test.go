package track_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth/internal/track"
)

// BenchmarkLogBatch is a batch of metrics from the handler on, without the wait for the disk: the
// CPU it takes.
func BenchmarkLogBatch(b *testing.B) {
	for _, n := range []int{10, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, run := bench(b)
			var m strings.Builder
			for i := range n {
				if i > 0 {
					m.WriteString(", ")
				}
				fmt.Fprintf(&m, `{"key": "metric_%d", "value": 0.%d, "timestamp": 1700000000000, "step": %%d, "run_id": "%s"}`, i, i+1, run)
			}
			body := `{"run_id": "` + run + `", "metrics": [` + m.String() + `]}`
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.send(b, "runs/log-batch", strings.ReplaceAll(body, "%d", fmt.Sprint(i)))
			}
		})
	}
}

// BenchmarkSearchRuns is filters and orders over 10,000 runs, or BERTH_BENCH_RUNS of them, a page
// of 20.
func BenchmarkSearchRuns(b *testing.B) {
	s := start(b, b.TempDir())
	runs := 10_000
	if n, err := strconv.Atoi(os.Getenv("BERTH_BENCH_RUNS")); err == nil {
		runs = n
	}
	if err := s.s.Plant(b.Context(), s.ws, runs); err != nil {
		b.Fatal(err)
	}
	for _, q := range []struct{ name, filter, order string }{
		{"page", "", ""},
		{"metric-and-param", "metrics.acc > 0.9 AND params.lr = '3'", ""},
		{"metric-few", "metrics.acc > 0.99999", ""},
		{"metric-range", "metrics.acc > 0.5 AND metrics.acc < 0.50001", ""},
		{"param-few", "params.seed = '4711'", ""},
		{"param-not", "params.lr != '3'", ""},
		{"tag", "tags.team = 't7'", ""},
		{"tag-null", "tags.team IS NULL", ""},
		{"name", "attributes.run_name = 'run-4711'", ""},
		{"never-together", "params.lr = '3' AND tags.team = 't4'", ""},
		{"two-common", "params.lr = '3' AND params.group = '5' AND metrics.acc > 0.5", ""},
		{"two-common-few", "params.lr = '3' AND params.group = '5' AND metrics.acc > 0.999", ""},
		{"like-prefix", "params.seed LIKE '471%'", ""},
		{"like-anywhere", "params.seed LIKE '%4711'", ""},
		{"order-metric", "", "metrics.acc DESC"},
		{"order-metric-param", "params.lr = '3'", "metrics.acc DESC"},
		{"order-tag", "", "tags.team DESC"},
		{"order-two", "", `params.lr", "metrics.acc DESC`},
		{"order-tag-param", "tags.team = 't7'", "params.seed ASC"},
		{"order-opposed", "metrics.acc < 0.1", "metrics.acc DESC"},
	} {
		body := `{"experiment_ids": ["0"], "max_results": 20`
		if q.filter != "" {
			body += `, "filter": "` + q.filter + `"`
		}
		if q.order != "" {
			body += `, "order_by": ["` + q.order + `"]`
		}
		body += "}"
		b.Run(q.name, func(b *testing.B) {
			begin := time.Now()
			s.send(b, "runs/search", body) // the first makes the columns that it needs
			first := time.Since(begin)
			var took []time.Duration
			for b.Loop() {
				at := time.Now()
				s.send(b, "runs/search", body)
				took = append(took, time.Since(at))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-p50")
			b.ReportMetric(float64(first.Microseconds())/1000, "ms-first") // b.Loop drops what was reported before
		})
	}
}

// BenchmarkPush is how long after a metric is sent a watcher has it, over connections.
func BenchmarkPush(b *testing.B) {
	s, run := bench(b)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.s.Serve(w, r, s.ws, track.Caller{Write: true}, strings.TrimPrefix(r.URL.EscapedPath(), "/"))
	}))
	defer web.Close()
	res, err := http.Get(web.URL + "/api/2.0/berth/metrics/stream?run_id=" + run)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		begin := time.Now()
		log, err := http.Post(web.URL+"/api/2.0/mlflow/runs/log-metric", "application/json", strings.NewReader(fmt.Sprintf(`{"run_id": %q, "key": "m", "value": %d, "timestamp": %d, "step": %d}`, run, i, i, i)))
		if err != nil || log.StatusCode != http.StatusOK {
			b.Fatal(log, err)
		}
		log.Body.Close()
		for lines.Scan() && !strings.Contains(lines.Text(), fmt.Sprintf(`"step":%d,`, i)) && !strings.Contains(lines.Text(), fmt.Sprintf(`"step":%d}`, i)) {
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(took[len(took)*p/100].Microseconds())/1000, fmt.Sprintf("ms-p%d", p))
	}
}

func bench(b *testing.B) (*server, string) {
	b.Helper()
	s := start(b, b.TempDir())
	out := s.send(b, "runs/create", `{"experiment_id": "0", "start_time": 1}`)
	_, id, _ := strings.Cut(out, `"run_uuid":"`)
	id, _, _ = strings.Cut(id, `"`)
	return s, id
}

func (s *server) send(b *testing.B, path, body string) string {
	r := httptest.NewRequest(http.MethodPost, "/api/2.0/mlflow/"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.s.Serve(w, r, s.ws, track.Caller{Write: true}, "api/2.0/mlflow/"+path)
	if w.Code != http.StatusOK {
		b.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// BenchmarkChart is a metric of a million points in as many as a chart has.
func BenchmarkChart(b *testing.B) {
	s, run := bench(b)
	for at := 0; at < 1_000_000; at += 1000 {
		var p strings.Builder
		for i := at; i < at+1000; i++ {
			fmt.Fprintf(&p, `,{"key": "curve", "value": %d, "timestamp": %d, "step": %d}`, i%97, 1700000000000+i, i)
		}
		s.send(b, "runs/log-batch", `{"run_id": "`+run+`", "metrics": [`+p.String()[1:]+`]}`)
	}
	for _, how := range []string{"", "&sampling=minmax"} {
		b.Run("sampling"+how, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(http.MethodGet, "/?metric_key=curve&max_results=1000&run_ids="+run+how, nil)
				w := httptest.NewRecorder()
				s.s.Serve(w, r, s.ws, track.Caller{Write: true}, "api/2.0/mlflow/metrics/get-history-bulk-interval")
				if w.Code != http.StatusOK {
					b.Fatalf("%d %s", w.Code, w.Body)
				}
			}
		})
	}
}
