package client_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/berthml/berth/client"
)

// TestRunsOfAllPages: a page may have fewer runs than were asked for, and yet all come.
func TestRunsOfAllPages(t *testing.T) {
	const all = 7
	var asked []int
	c := open(t, map[string]http.HandlerFunc{
		"POST /mlflow/v1.0" + workspace + "/api/2.0/mlflow/runs/search": func(w http.ResponseWriter, r *http.Request) {
			var q struct {
				Filter string `json:"filter"`
				Most   int    `json:"max_results"`
				Token  string `json:"page_token"`
			}
			if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.Filter != "tags.a = 'b'" {
				t.Error(err, q)
			}
			asked = append(asked, q.Most)
			fmt.Fprint(w, `{"runs": [`)
			begin, _ := strconv.Atoi(q.Token)
			end := min(begin+min(q.Most, 2), all)
			for i := begin; i < end; i++ {
				if i > begin {
					fmt.Fprint(w, ",")
				}
				fmt.Fprintf(w, `{"info": {"run_id": "r%d"}}`, i)
			}
			fmt.Fprint(w, `]`)
			if end < all {
				fmt.Fprintf(w, `, "next_page_token": "%d"`, end)
			}
			fmt.Fprint(w, `}`)
		},
	})
	for _, q := range []struct {
		limit, runs int
		asked       string
	}{{5, 5, "[5 3 1]"}, {7, 7, "[7 5 3 1]"}, {20, all, "[20 18 16 14]"}, {0, all, "[1000 1000 1000 1000]"}} {
		asked = nil
		runs, err := c.Runs(t.Context(), client.RunQuery{Filter: "tags.a = 'b'", Limit: q.limit})
		if err != nil || fmt.Sprint(asked) != q.asked || len(runs) != q.runs {
			t.Fatalf("limit %d: asked for %v and got %d runs, %v", q.limit, asked, len(runs), err)
		}
		for i, r := range runs {
			if r.Info.ID != fmt.Sprint("r", i) {
				t.Errorf("limit %d: run %d is %s", q.limit, i, r.Info.ID)
			}
		}
	}
}

// TestChartOfManyRuns: a chart of more runs than a server takes at once has all of them.
func TestChartOfManyRuns(t *testing.T) {
	const all = 230
	var asked []int
	c := open(t, map[string]http.HandlerFunc{
		"GET /mlflow/v1.0" + workspace + "/api/2.0/mlflow/metrics/get-history-bulk-interval": func(w http.ResponseWriter, r *http.Request) {
			ids := r.URL.Query()["run_ids"]
			asked = append(asked, len(ids))
			var out struct {
				Metrics []client.Point `json:"metrics"`
			}
			for _, id := range ids {
				out.Metrics = append(out.Metrics, client.Point{Run: id, Key: "m", Value: 1})
			}
			if err := json.NewEncoder(w).Encode(out); err != nil {
				t.Error(err)
			}
		},
	})
	var runs []string
	for i := range all {
		runs = append(runs, fmt.Sprint("r", i))
	}
	points, err := c.Chart(t.Context(), runs, "m", 1000)
	if err != nil || fmt.Sprint(asked) != "[100 100 30]" || len(points) != all {
		t.Fatalf("asked for %v and got %d points, %v", asked, len(points), err)
	}
	for i, p := range points {
		if p.Run != runs[i] {
			t.Errorf("point %d is of %s", i, p.Run)
		}
	}
}
