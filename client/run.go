package client

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// RunDetails is all that the MLflow server says of a run.
type RunDetails struct {
	Run
	Inputs struct {
		Datasets []struct {
			Tags    []Pair `json:"tags,omitempty"`
			Dataset struct {
				Name   string `json:"name"`
				Digest string `json:"digest"`
				Type   string `json:"source_type,omitempty"`
			} `json:"dataset"`
		} `json:"dataset_inputs,omitempty"`
		Models []struct {
			ID string `json:"model_id"`
		} `json:"model_inputs,omitempty"`
	} `json:"inputs"`
	// Models are the models that the run logged, and Registered the versions that were registered
	// of it.
	Models     []LoggedModel  `json:"logged_models"`
	Registered []ModelVersion `json:"registered_versions"`
	Artifacts  []RunFile      `json:"artifacts"`
}

// LoggedModel is a model that a run logged.
type LoggedModel struct {
	ID     string `json:"model_id"`
	Name   string `json:"name"`
	Status string `json:"status"`
	Type   string `json:"model_type,omitempty"`
}

// ModelVersion is a version of a registered model.
type ModelVersion struct {
	Name    string   `json:"name"`
	Version string   `json:"version"`
	Stage   string   `json:"current_stage,omitempty"`
	Aliases []string `json:"aliases,omitempty"`
}

// StageName is the stage of a version, "" where it is in none.
func (v *ModelVersion) StageName() string {
	if v.Stage == "None" {
		return ""
	}
	return v.Stage
}

// RunFile is a file or folder of a run. Its path is relative to the run's artifacts.
type RunFile struct {
	Path string `json:"path"`
	Dir  bool   `json:"is_dir"`
	Size int64  `json:"file_size,omitempty"`

	from artifacts // where it is kept
	name string    // its path there
}

// RunDetails reads all about a run, deleted or not: with its files, those in folders apart.
func (c *Client) RunDetails(ctx context.Context, id string) (*RunDetails, error) {
	var out struct {
		Run RunDetails `json:"run"`
	}
	if err := c.call(ctx, http.MethodGet, c.tracking("runs/get?run_id="+url.QueryEscape(id)), nil, &out); err != nil {
		return nil, err
	}
	r := &out.Run
	r.complete()
	var err error
	if r.Models, err = c.modelsOfRun(ctx, r.Info.Experiment, r.Info.ID); err != nil {
		return nil, err
	}
	if r.Registered, err = c.versionsOfRun(ctx, r.Info.ID); err != nil {
		return nil, err
	}
	if r.Artifacts, err = c.RunFiles(ctx, r.Info.ID, ""); err != nil {
		return nil, err
	}
	return r, nil
}

// literal is a text in a filter of MLflow.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func (c *Client) modelsOfRun(ctx context.Context, experiment, run string) ([]LoggedModel, error) {
	all, token := []LoggedModel{}, ""
	for {
		var page struct {
			Models []struct {
				Info LoggedModel `json:"info"`
			} `json:"models"`
			Next string `json:"next_page_token"`
		}
		in := map[string]any{"experiment_ids": []string{experiment}, "filter": "source_run_id = " + literal(run), "page_token": token}
		if err := c.call(ctx, http.MethodPost, c.tracking("logged-models/search"), in, &page); err != nil {
			return nil, err
		}
		for _, m := range page.Models {
			all = append(all, m.Info)
		}
		if token = page.Next; token == "" {
			return all, nil
		}
	}
}

func (c *Client) versionsOfRun(ctx context.Context, run string) ([]ModelVersion, error) {
	all, token := []ModelVersion{}, ""
	for {
		var page struct {
			Versions []ModelVersion `json:"model_versions"`
			Next     string         `json:"next_page_token"`
		}
		q := url.Values{"filter": {"run_id = " + literal(run)}, "page_token": {token}}
		if err := c.call(ctx, http.MethodGet, c.tracking("model-versions/search?"+q.Encode()), nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Versions...)
		if token = page.Next; token == "" {
			return all, nil
		}
	}
}

// ModelVersion reads what MLflow's registry says of a version of a model.
func (c *Client) ModelVersion(ctx context.Context, name, version string) (*ModelVersion, error) {
	var out struct {
		Version ModelVersion `json:"model_version"`
	}
	q := url.Values{"name": {name}, "version": {version}}
	err := c.call(ctx, http.MethodGet, c.tracking("model-versions/get?"+q.Encode()), nil, &out)
	return &out.Version, err
}

// RunFiles lists what is in a folder of a run's own artifacts; "" is all of them.
func (c *Client) RunFiles(ctx context.Context, run, folder string) ([]RunFile, error) {
	return c.folder(ctx, ownArtifacts(run), folder)
}

// DeleteRun hides a run. It can be restored until it is removed for good.
func (c *Client) DeleteRun(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, c.tracking("runs/delete"), map[string]string{"run_id": id}, nil)
}

// RestoreRun shows a run again that was deleted and is not removed for good yet.
func (c *Client) RestoreRun(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, c.tracking("runs/restore"), map[string]string{"run_id": id}, nil)
}

// Experiment is an experiment of the workspace's MLflow server.
type Experiment struct {
	ID      string `json:"experiment_id"`
	Name    string `json:"name"`
	Stage   string `json:"lifecycle_stage"`
	Created int64  `json:"creation_time"`
	Updated int64  `json:"last_update_time"`
	Tags    []Pair `json:"tags,omitempty"`
}

// DeleteExperiment hides an experiment and its runs. It can be restored until it is removed for
// good.
func (c *Client) DeleteExperiment(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, c.tracking("experiments/delete"), map[string]string{"experiment_id": id}, nil)
}

// RestoreExperiment shows an experiment again that was deleted, with all of its runs.
func (c *Client) RestoreExperiment(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, c.tracking("experiments/restore"), map[string]string{"experiment_id": id}, nil)
}

// ListExperiments returns experiments, the newest first; view is as in RunQuery.
func (c *Client) ListExperiments(ctx context.Context, view View) ([]Experiment, error) {
	return c.experiments(ctx, view, "")
}

// experimentsAtOnce is how many experiments are asked for at a time: the server looks at all of
// them for each page, and takes lists of ten thousand ids.
const (
	experimentsAtOnce = 50000
	idsAtOnce         = 10000
)

// experiments returns those that meet a filter.
func (c *Client) experiments(ctx context.Context, view View, filter string) ([]Experiment, error) {
	all, token := []Experiment{}, ""
	for {
		var out struct {
			Experiments []Experiment `json:"experiments"`
			Next        string       `json:"next_page_token"`
		}
		in := map[string]any{"max_results": experimentsAtOnce, "page_token": token, "view_type": view, "filter": filter}
		if err := c.call(ctx, http.MethodPost, c.tracking("experiments/search"), in, &out); err != nil {
			return nil, err
		}
		all = append(all, out.Experiments...)
		if token = out.Next; token == "" {
			return all, nil
		}
	}
}

// ExperimentsOf returns the experiments that runs are in, deleted or not.
func (c *Client) ExperimentsOf(ctx context.Context, runs []Run) ([]Experiment, error) {
	ids := make([]string, len(runs))
	for i := range runs {
		ids[i] = literal(runs[i].Info.Experiment)
	}
	slices.Sort(ids)
	var all []Experiment
	for some := range slices.Chunk(slices.Compact(ids), idsAtOnce) {
		found, err := c.experiments(ctx, ViewAll, "experiment_id IN ("+strings.Join(some, ",")+")")
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// ExperimentNamed returns the experiment with a name, deleted or not.
func (c *Client) ExperimentNamed(ctx context.Context, name string) (*Experiment, error) {
	var out struct {
		Experiment Experiment `json:"experiment"`
	}
	err := c.call(ctx, http.MethodGet, c.tracking("experiments/get-by-name?experiment_name="+url.QueryEscape(name)), nil, &out)
	return &out.Experiment, err
}
