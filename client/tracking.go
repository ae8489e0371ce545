package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/berthml/berth"
)

// Run is a run of the workspace's MLflow server.
type Run struct {
	Info struct {
		ID         string `json:"run_id"`
		Name       string `json:"run_name"`
		Experiment string `json:"experiment_id"`
		User       string `json:"user_id"`
		Status     string `json:"status"`
		Start      int64  `json:"start_time"`
		End        int64  `json:"end_time"`
		Stage      string `json:"lifecycle_stage"`
		URI        string `json:"artifact_uri"`
	} `json:"info"`
	Data struct {
		Metrics []Metric `json:"metrics"`
		Params  []Pair   `json:"params"`
		Tags    []Pair   `json:"tags"`
		// AllMetrics is how many metrics the run has, where a search asked for fewer.
		AllMetrics int `json:"berth_metric_count,omitempty"`
	} `json:"data"`
}

// complete makes lists of what is empty, which the protocol leaves out.
func (r *Run) complete() {
	d := &r.Data
	d.Metrics, d.Params, d.Tags = append([]Metric{}, d.Metrics...), append([]Pair{}, d.Params...), append([]Pair{}, d.Tags...)
}

// Metric is the latest value of a metric. NaN and infinities are strings.
type Metric struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
	Step  int64  `json:"step"`
}

// Pair is a parameter or a tag.
type Pair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// View says whether a search finds what was deleted.
type View string

// The views of MLflow.
const (
	ViewActive  View = "ACTIVE_ONLY"
	ViewDeleted View = "DELETED_ONLY"
	ViewAll     View = "ALL"
)

// RunQuery selects runs, in MLflow's syntax.
type RunQuery struct {
	Experiments []string `json:"experiment_ids,omitempty"` // ids
	// Within has the runs of all experiments of a view looked through, where none is named.
	Within  View     `json:"berth_experiment_view_type,omitempty"`
	Filter  string   `json:"filter,omitempty"`
	View    View     `json:"run_view_type,omitempty"` // ViewActive is the default
	OrderBy []string `json:"order_by,omitempty"`
	// MetricKeys are the metrics that the answer has, and MaxMetrics is how many of each run; nil
	// is all.
	MetricKeys []string `json:"berth_metric_keys,omitzero"`
	MaxMetrics *int     `json:"berth_max_metrics,omitempty"`
	Limit      int      `json:"-"` // at most this many; 0 is all
}

// tracking is an address of the workspace's MLflow server.
func (c *Client) tracking(call string) string {
	return c.Workspace.TrackingPath() + "/api/2.0/mlflow/" + call
}

// Track calls the workspace's MLflow server; path is relative to /api/2.0/.
func (c *Client) Track(ctx context.Context, method, path string, in, out any) error {
	return c.call(ctx, method, c.Workspace.TrackingPath()+"/api/2.0/"+path, in, out)
}

// PutArtifact uploads a file to the server's artifacts. If the connection is lost, open is called
// again.
func (c *Client) PutArtifact(ctx context.Context, name string, open func() (io.ReadCloser, error)) error {
	return c.persist(ctx, http.MethodPut, func() error {
		r, err := open()
		if err != nil {
			return err
		}
		defer r.Close() // opened for reading
		req, err := c.request(ctx, http.MethodPut, c.Workspace.TrackingPath()+"/api/2.0/mlflow-artifacts/artifacts/"+escapePath(name), nil)
		if err != nil {
			return err
		}
		req.Body = r
		_, err = c.answer(req, nil)
		return err
	})
}

// Runs searches runs, page by page: at most q.Limit, or all where it is 0.
func (c *Client) Runs(ctx context.Context, q RunQuery) ([]Run, error) {
	runs := []Run{}
	err := c.EachRun(ctx, q, func(r *Run) error {
		runs = append(runs, *r)
		return nil
	})
	return runs, err
}

// EachRun calls f with each run that Runs returns, and has no more than a page of them at a time.
func (c *Client) EachRun(ctx context.Context, q RunQuery, f func(*Run) error) error {
	page := struct {
		RunQuery
		Size  int    `json:"max_results"`
		Token string `json:"page_token,omitempty"`
	}{RunQuery: q}
	for seen := 0; ; {
		page.Size = pageOfRuns
		if q.Limit > 0 {
			page.Size = min(page.Size, q.Limit-seen)
		}
		var out struct {
			Runs []Run  `json:"runs"`
			Next string `json:"next_page_token"`
		}
		if err := c.call(ctx, http.MethodPost, c.tracking("runs/search"), page, &out); err != nil {
			return err
		}
		for i := range out.Runs {
			out.Runs[i].complete()
			if err := f(&out.Runs[i]); err != nil {
				return err
			}
		}
		page.Token, seen = out.Next, seen+len(out.Runs)
		if page.Token == "" || q.Limit > 0 && seen >= q.Limit {
			return nil
		}
	}
}

// pageOfRuns is how many runs are asked for at a time.
const pageOfRuns = 1000

// Run reads a run.
func (c *Client) Run(ctx context.Context, id string) (*Run, error) {
	var out struct {
		Run Run `json:"run"`
	}
	err := c.call(ctx, http.MethodGet, c.tracking("runs/get?run_id="+url.QueryEscape(id)), nil, &out)
	return &out.Run, err
}

// Point is one value of a metric.
type Point struct {
	Run       string `json:"run_id"`
	Key       string `json:"key"`
	Value     any    `json:"value"` // a number, or NaN or an infinity as text
	Step      int64  `json:"step"`
	Timestamp int64  `json:"timestamp"`
}

// Float is the value as a number.
func (p Point) Float() float64 {
	if f, ok := p.Value.(float64); ok {
		return f
	}
	f, err := strconv.ParseFloat(fmt.Sprint(p.Value), 64) // json.Number, "Infinity", "NaN"
	if err != nil {
		return math.NaN()
	}
	return f
}

// PrimaryMetrics returns the main metric of each of the runs that has one.
func (c *Client) PrimaryMetrics(ctx context.Context, runs []string) (map[string]Point, error) {
	var out struct {
		Metrics []Point `json:"metrics"`
	}
	err := c.call(ctx, http.MethodPost, c.Workspace.TrackingPath()+"/api/2.0/berth/metrics/primary", map[string]any{"run_ids": runs}, &out)
	found := make(map[string]Point, len(out.Metrics))
	for _, p := range out.Metrics {
		found[p.Run] = p
	}
	return found, err
}

// ExperimentSize is the size of an experiment.
type ExperimentSize struct {
	ID         string `json:"experiment_id"`
	Name       string `json:"name"`
	Runs       int    `json:"runs"`
	Models     int    `json:"logged_models"`
	Points     int64  `json:"points"`
	PointBytes int64  `json:"point_bytes"`
	Files      int    `json:"files"`
	FileBytes  int64  `json:"file_bytes"`
}

// ExperimentSizes returns the size of each experiment, including deleted runs and logged models.
func (c *Client) ExperimentSizes(ctx context.Context) ([]ExperimentSize, error) {
	var out struct {
		Experiments []ExperimentSize `json:"experiments"`
	}
	err := c.Track(ctx, http.MethodGet, "berth/experiments/sizes", nil, &out)
	return out.Experiments, err
}

// Chart returns a metric of several runs by step, with at most limit points each, among them all
// peaks.
func (c *Client) Chart(ctx context.Context, runs []string, key string, limit int) ([]Point, error) {
	var points []Point
	for some := range slices.Chunk(runs, runsOfChart) {
		q := url.Values{"run_ids": some, "metric_key": {key}, "max_results": {strconv.Itoa(limit)}, "sampling": {"minmax"}}
		var out struct {
			Metrics []Point `json:"metrics"`
		}
		if err := c.call(ctx, http.MethodGet, c.tracking("metrics/get-history-bulk-interval?"+q.Encode()), nil, &out); err != nil {
			return nil, err
		}
		points = append(points, out.Metrics...)
	}
	return points, nil
}

// runsOfChart is how many runs a server takes in one request.
const runsOfChart = 100

// History calls each with every point of a metric of a run, by time, as they arrive.
func (c *Client) History(ctx context.Context, run, key string, each func(Point) error) error {
	q := url.Values{"run_id": {run}, "metric_key": {key}}
	req, err := c.request(ctx, http.MethodGet, c.tracking("metrics/get-history?"+q.Encode()), nil)
	if err != nil {
		return err
	}
	resp, err := c.do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // opened for reading
	if resp.StatusCode >= 300 {
		return failure(resp)
	}
	d := json.NewDecoder(resp.Body)
	d.UseNumber() // as the server writes them
	for {         // {"metrics":[POINT,…]}, or {}
		t, err := d.Token()
		if err != nil {
			return c.lost(err)
		}
		for t == json.Delim('[') && d.More() {
			var p Point
			if err := d.Decode(&p); err != nil {
				return c.lost(err)
			}
			if err := each(p); err != nil {
				return err
			}
		}
		if t == json.Delim('}') {
			return nil
		}
	}
}

// WatchMetrics calls f for every existing and new point of a run until the run has ended, and
// returns the run's final status. A lost connection is resumed.
func (c *Client) WatchMetrics(ctx context.Context, run string, f func(Point) error) (string, error) {
	seen := map[Point]bool{}
	for attempt := 1; ; attempt++ {
		status, err := c.watchMetrics(ctx, run, func(p Point) error {
			attempt = 1
			if seen[p] {
				return nil
			}
			seen[p] = true
			return f(p)
		})
		crowded := attempt > 1 && attempt < 20 && berth.CodeOf(err) == berth.Limit // the one that was lost may count still
		if status != "" || err != nil && !unreachable(err) && !crowded {
			return status, err
		}
		if err := pause(ctx, attempt); err != nil {
			return "", err
		}
	}
}

func (c *Client) watchMetrics(ctx context.Context, run string, f func(Point) error) (string, error) {
	req, err := c.request(ctx, http.MethodGet, c.Workspace.TrackingPath()+"/api/2.0/berth/metrics/stream?run_id="+url.QueryEscape(run), nil)
	if err != nil {
		return "", err
	}
	resp, err := c.do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() // opened for reading
	if resp.StatusCode >= 300 {
		return "", failure(resp)
	}
	event := ""
	for lines := bufio.NewReader(resp.Body); ; {
		line, err := lines.ReadBytes('\n')
		switch {
		case err != nil && ctx.Err() != nil:
			return "", ctx.Err()
		case err != nil:
			return "", c.lost(err)
		}
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		switch {
		case len(name) == 0:
			event = ""
		case string(name) == "event":
			event = string(value)
		case string(name) == "data" && event == "":
			var p Point
			if err := json.Unmarshal(value, &p); err != nil {
				return "", err
			}
			if err := f(p); err != nil {
				return "", err
			}
		case string(name) == "data" && event == "ended":
			var end struct{ Status string }
			err := json.Unmarshal(value, &end)
			return end.Status, err
		case string(name) == "data": // the server could not go on: the next connection says whether it can
			return "", c.lost(io.ErrUnexpectedEOF)
		}
	}
}
