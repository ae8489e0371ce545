package track_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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

// BenchmarkSearchRuns is a filter and an order over 10,000 runs, a page of 20.
func BenchmarkSearchRuns(b *testing.B) {
	s, _ := bench(b)
	for i := range 10_000 {
		out := s.send(b, "runs/create", fmt.Sprintf(`{"experiment_id": "0", "start_time": %d}`, i))
		_, id, _ := strings.Cut(out, `"run_uuid":"`)
		id, _, _ = strings.Cut(id, `"`)
		s.send(b, "runs/log-batch", fmt.Sprintf(`{"run_id": "%s", "metrics": [{"key": "acc", "value": 0.%d, "timestamp": 1}], "params": [{"key": "lr", "value": "%d"}]}`, id, i, i%10))
	}
	for name, body := range map[string]string{
		"page":   `{"experiment_ids": ["0"], "max_results": 20}`,
		"filter": `{"experiment_ids": ["0"], "max_results": 20, "filter": "metrics.acc > 0.9 AND params.lr = '3'"}`,
		"order":  `{"experiment_ids": ["0"], "max_results": 20, "filter": "params.lr = '3'", "order_by": ["metrics.acc DESC"]}`,
		"all":    `{"experiment_ids": ["0"], "max_results": 20, "order_by": ["metrics.acc DESC"]}`,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s.send(b, "runs/search", body)
			}
		})
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
