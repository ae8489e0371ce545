package client

import (
	"context"
	"net/http"
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
	} `json:"info"`
	Data struct {
		Metrics []Metric `json:"metrics"`
		Params  []Pair   `json:"params"`
		Tags    []Pair   `json:"tags"`
	} `json:"data"`
}

// Metric is the latest value of a metric. NaN and infinities are texts.
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

// RunQuery chooses runs, in MLflow's own grammar.
type RunQuery struct {
	Experiments []string `json:"experiment_ids"` // ids
	Filter      string   `json:"filter,omitempty"`
	OrderBy     []string `json:"order_by,omitempty"`
	Limit       int      `json:"max_results,omitempty"`
}

// tracking is an address of the workspace's MLflow server.
func (c *Client) tracking(call string) string {
	return c.Workspace.TrackingPath() + "/api/2.0/mlflow/" + call
}

// Runs searches runs.
func (c *Client) Runs(ctx context.Context, q RunQuery) ([]Run, error) {
	var out struct {
		Runs []Run `json:"runs"`
	}
	err := c.call(ctx, http.MethodPost, c.tracking("runs/search"), q, &out)
	return out.Runs, err
}

// Experiments is the names of experiments by their ids.
func (c *Client) Experiments(ctx context.Context) (map[string]string, error) {
	names := map[string]string{}
	for token := ""; ; {
		var out struct {
			Experiments []struct {
				ID   string `json:"experiment_id"`
				Name string `json:"name"`
			} `json:"experiments"`
			Next string `json:"next_page_token"`
		}
		in := map[string]any{"max_results": 1000, "page_token": token}
		if err := c.call(ctx, http.MethodPost, c.tracking("experiments/search"), in, &out); err != nil {
			return nil, err
		}
		for _, e := range out.Experiments {
			names[e.ID] = e.Name
		}
		if token = out.Next; token == "" {
			return names, nil
		}
	}
}
