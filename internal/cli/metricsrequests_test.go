package cli_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/berthml/berth/internal/cli"
)

// berthAt runs a command against a server that is a function, and returns its exit code and what it
// prints.
func berthAt(t *testing.T, serve http.HandlerFunc, args ...string) (code int, out string) {
	t.Helper()
	srv := httptest.NewTLSServer(serve)
	defer srv.Close()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"BERTH_URL": srv.URL, "BERTH_TOKEN": "x", "BERTH_CA": ca, "BERTH_HOME": dir,
		"BERTH_WORKSPACE": "w", "BERTH_RESOURCE_GROUP": "g", "BERTH_SUBSCRIPTION": "s",
	} {
		t.Setenv(k, v)
	}
	said, err := os.Create(filepath.Join(dir, "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	stdout := os.Stdout
	os.Stdout = said
	code = cli.Main(append([]string{"berth"}, args...))
	os.Stdout = stdout
	b, err := os.ReadFile(said.Name())
	if err != nil {
		t.Fatal(err)
	}
	return code, string(b)
}

// TestMetricsAskOncePerMetric: the points of a metric of several runs are asked for together, and
// are printed with their runs.
func TestMetricsAskOncePerMetric(t *testing.T) {
	logged := map[string][]string{"one": {"acc", "loss"}, "two": {"loss", "acc"}, "three": {"loss"}}
	var asked []string
	code, out := berthAt(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch path.Base(r.URL.Path) {
		case "get":
			var metrics []map[string]any
			for i, key := range logged[q.Get("run_id")] {
				metrics = append(metrics, map[string]any{"key": key, "value": i})
			}
			run := map[string]any{"info": map[string]any{"run_id": q.Get("run_id")}, "data": map[string]any{"metrics": metrics}}
			_ = json.NewEncoder(w).Encode(map[string]any{"run": run})
		case "get-history-bulk-interval":
			asked = append(asked, fmt.Sprint(q.Get("metric_key"), q["run_ids"]))
			var points []map[string]any
			for _, id := range q["run_ids"] {
				for step := range len(id) {
					points = append(points, map[string]any{"run_id": id, "key": q.Get("metric_key"), "value": 1, "step": step})
				}
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"metrics": points})
		default:
			t.Errorf("%s is asked for", r.URL)
			http.NotFound(w, r)
		}
	}, "metrics", "one", "two", "three", "one", "-o", "json")
	var rows []struct {
		Run    string `json:"run_id"`
		Key    string
		Points []struct {
			Run string `json:"run_id"`
		}
	}
	if err := json.Unmarshal([]byte(out), &rows); err != nil || code != 0 {
		t.Fatalf("%d %s: %v", code, out, err)
	}
	var got []string
	for _, r := range rows {
		got = append(got, r.Run+" "+r.Key)
		if len(r.Points) != len(r.Run) || r.Points[0].Run != r.Run {
			t.Errorf("%s of %s has the points %v", r.Key, r.Run, r.Points)
		}
	}
	if want := []string{"one acc", "one loss", "two loss", "two acc", "three loss", "one acc", "one loss"}; !slices.Equal(got, want) {
		t.Errorf("printed are %q", got)
	}
	slices.Sort(asked)
	if want := []string{"acc[one two]", "loss[one two three]"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q", asked)
	}
}
