// Package migrate brings the experiments, runs, models and files of an MLflow server, or of the
// folder that MLflow writes without one, into a workspace. It can be done again: what is there
// already is not doubled, and runs and logged models that changed are brought up to date.
package migrate

import (
	"cmp"
	"context"
	"encoding/json"
	"io"

	"github.com/berthml/berth"
)

// A Source is where things are brought over from. Lists are of what was not deleted. One of them
// that cannot be read has Err, and a name or id by which people find it; Left is why parts of one
// cannot be read.
type Source interface {
	// Name is what the source is called in the workspace: it has no credentials in it.
	Name() string
	// Same says whether a name is this source's by another address.
	Same(name string) bool
	Experiments(ctx context.Context) ([]Experiment, error)
	Runs(ctx context.Context, experiment string, each func(*Run) error) error
	// ExperimentOf is the ID of the experiment that a run is in.
	ExperimentOf(ctx context.Context, run string) (string, error)
	// History calls each with the points of a metric, some at a time.
	History(ctx context.Context, run *Run, key string, each func([]Metric) error) error
	LoggedModels(ctx context.Context, experiment string, each func(*LoggedModel) error) error
	Models(ctx context.Context, each func(*Model) error) error
	// Files are those of a run or a logged model.
	Files(ctx context.Context, of Owner) ([]File, error)
	Open(ctx context.Context, of Owner, file File) (io.ReadCloser, error)
}

// NoSource is the error of an address or a path that nothing can be imported from.
type NoSource struct{ error }

func (n *NoSource) Unwrap() error { return n.error }

// noSource says what was given, and what is expected.
func noSource(format string, args ...any) error {
	return &NoSource{berth.Errorf(berth.Invalid, format, args...)}
}

// An Owner has files.
type Owner struct {
	Run, Model string // one of them
	folder     string // where the files are, of a source that is a folder
}

func (o Owner) String() string {
	if o.Model != "" {
		return "logged model " + o.Model
	}
	return "run " + o.Run
}

// File is a file of a run or a model.
type File struct {
	Path string
	Size int64 // or unlisted
	Err  error
}

// unlisted is the size of a file whose source does not know it.
const unlisted = -1

// The things of MLflow as its API has them, as far as they are brought over.
type (
	// Pair is a tag or a parameter.
	Pair struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	// Experiment has runs.
	Experiment struct {
		Created int64   `json:"creation_time"`
		ID      string  `json:"experiment_id"`
		Name    string  `json:"name"`
		Tags    []Pair  `json:"tags"`
		Err     error   `json:"-"`
		Left    []error `json:"-"`
	}
	// Metric is one point.
	Metric struct {
		Key       string `json:"key"`
		Value     any    `json:"value"` // a number, or a text for what JSON has no number for
		Timestamp int64  `json:"timestamp"`
		Step      int64  `json:"step"`
		Model     string `json:"model_id,omitempty"`
		Dataset   string `json:"dataset_name,omitempty"`
		Digest    string `json:"dataset_digest,omitempty"`
		Run       string `json:"run_id,omitempty"`
	}
	// Run is a run, with the latest point of each of its metrics.
	Run struct {
		Info struct {
			ID          string `json:"run_id"`
			Name        string `json:"run_name"`
			User        string `json:"user_id"`
			Status      string `json:"status"`
			Start       int64  `json:"start_time"`
			End         int64  `json:"end_time"`
			ArtifactURI string `json:"artifact_uri"`
		} `json:"info"`
		Data struct {
			Metrics []Metric `json:"metrics"`
			Params  []Pair   `json:"params"`
			Tags    []Pair   `json:"tags"`
		} `json:"data"`
		Inputs struct {
			Datasets []json.RawMessage `json:"dataset_inputs"`
			Models   []json.RawMessage `json:"model_inputs"`
		} `json:"inputs"`
		Outputs struct {
			Models []json.RawMessage `json:"model_outputs"`
		} `json:"outputs"`
		Err    error   `json:"-"`
		Left   []error `json:"-"`
		folder string
	}
	// LoggedModel is a model that a run of MLflow 3 logged.
	LoggedModel struct {
		Info struct {
			ID      string `json:"model_id"`
			Name    string `json:"name"`
			Type    string `json:"model_type"`
			Run     string `json:"source_run_id"`
			Created int64  `json:"creation_timestamp_ms"`
			Updated int64  `json:"last_updated_timestamp_ms"`
			Status  string `json:"status"`
			Message string `json:"status_message"`
			Tags    []Pair `json:"tags"`
		} `json:"info"`
		Data struct {
			Params  []Pair   `json:"params"`
			Metrics []Metric `json:"metrics"` // every point, of whichever run
		} `json:"data"`
		Err    error   `json:"-"`
		Left   []error `json:"-"`
		folder string
	}
	// Model is a registered model with its versions, by number.
	Model struct {
		Name        string            `json:"name"`
		Description string            `json:"description"`
		Tags        []Pair            `json:"tags"`
		Aliases     map[string]string `json:"-"` // to versions
		Versions    []Version         `json:"-"`
		Err         error             `json:"-"`
		Left        []error           `json:"-"`
	}
	// Version is a version of a registered model.
	Version struct {
		Number      int     `json:"-"`
		Err         error   `json:"-"`
		Left        []error `json:"-"`
		Description string  `json:"description"`
		Source      string  `json:"source"`
		Storage     string  `json:"-"` // where its files are, if Source names another version
		Run         string  `json:"run_id"`
		LoggedModel string  `json:"model_id"`
		Stage       string  `json:"current_stage"`
		Tags        []Pair  `json:"tags"`
	}
)

// owner is who has the files of a run.
func (r *Run) owner() Owner { return Owner{Run: r.Info.ID, folder: r.folder} }

func (m *LoggedModel) owner() Owner { return Owner{Model: m.Info.ID, folder: m.folder} }

// fail says that an element could not be decoded whole. name is what people call it.
func (e *Experiment) fail(name string, err error) { e.Name, e.Err = cmp.Or(e.Name, name), err }
func (r *Run) fail(id string, err error)          { r.Info.ID, r.Err = cmp.Or(r.Info.ID, id), err }
func (m *LoggedModel) fail(id string, err error)  { m.Info.ID, m.Err = cmp.Or(m.Info.ID, id), err }
