package migrate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// Options are the choices of Copy.
type Options struct {
	// Full also reads runs again that did not change since they were brought over.
	Full bool
	// Say tells how far it is, and what was left behind.
	Say func(format string, args ...any)
}

// Counts is what is there after an import: what was refused is in LeftBehind alone.
type Counts struct {
	Experiments int   `json:"experiments"`
	Runs        int   `json:"runs"`
	Unchanged   int   `json:"unchanged_runs"`
	Points      int   `json:"points"`
	Files       int   `json:"files"`
	Bytes       int64 `json:"bytes"`
	Logged      int   `json:"logged_models"`
	Models      int   `json:"registered_models"`
	Versions    int   `json:"versions"`
	LeftBehind  int   `json:"left_behind"`
	// NotImported is what was left behind, and why; at most mostNamed of them.
	NotImported []string `json:"not_imported"`
}

// mostNamed is how many of the things that were left behind are named in the end.
const mostNamed = 1000

// copier brings things over.
type copier struct {
	Options
	from  Source
	to    *client.Client
	count Counts
	// uris is where the files of runs and logged models are, by id; logged says which are models.
	uris   map[string]string
	logged map[string]bool
	// ids are the ids here of runs that have another one in the source; experiments are those of
	// the source, by id.
	ids         map[string]string
	experiments map[string]Experiment
}

// Copy brings everything of a source that was not deleted into the workspace of a client.
func Copy(ctx context.Context, from Source, to *client.Client, o Options) (Counts, error) {
	c := &copier{Options: o, from: from, to: to, uris: map[string]string{}, logged: map[string]bool{}, ids: map[string]string{}, experiments: map[string]Experiment{}, count: Counts{NotImported: []string{}}}
	err := c.all(ctx)
	if client.IsFull(err) {
		err = &full{err}
	}
	return c.count, err
}

// full is the end of an import into a workspace that is full.
type full struct{ err error }

func (f *full) Error() string { return f.err.Error() + "; then import again to go on" }
func (f *full) Unwrap() error { return f.err }

// all brings over everything.
func (c *copier) all(ctx context.Context) error {
	experiments, err := c.from.Experiments(ctx)
	if err != nil {
		return err
	}
	for _, e := range experiments {
		c.experiments[e.ID] = e
	}
	for i, e := range experiments {
		before := c.count
		if err := c.experiment(ctx, e); err != nil {
			return err
		}
		if c.count.Experiments == before.Experiments {
			continue // it was left behind
		}
		c.Say("experiment %s (%d of %d): %d runs, %d of them unchanged; %d points, %d files", clip(e.Name), i+1, len(experiments), c.count.Runs-before.Runs,
			c.count.Unchanged-before.Unchanged, c.count.Points-before.Points, c.count.Files-before.Files)
	}
	err = c.from.Models(ctx, func(m *Model) error { return c.registered(ctx, m) })
	return c.attempt(err, "registered models")
}

func (c *copier) post(ctx context.Context, path string, in, out any) error {
	return c.to.Track(ctx, http.MethodPost, path, in, out)
}

// leave says that something stays behind.
func (c *copier) leave(format string, args ...any) {
	c.count.LeftBehind++
	text := clip(fmt.Sprintf(format, args...))
	if len(c.count.NotImported) < mostNamed {
		c.count.NotImported = append(c.count.NotImported, text)
	}
	c.Say("not imported: %s", text)
}

// leaveParts leaves parts of something behind, for the errors of a source.
func (c *copier) leaveParts(errs []error, format string, args ...any) {
	for _, err := range errs {
		c.leave("%s: %v", fmt.Sprintf(format, args...), err)
	}
}

// attempt leaves something behind for an error of its own. Other errors end the import, and are
// returned.
func (c *copier) attempt(err error, format string, args ...any) error {
	if err == nil || !leaves(err) {
		return err
	}
	c.leave("%s: %v", fmt.Sprintf(format, args...), err)
	return nil
}

// experiment brings over an experiment; one of the same name that is there is the same.
func (c *copier) experiment(ctx context.Context, e Experiment) error {
	if err := cmp.Or(e.Err, checkName(e.Name), checkName(e.ID)); err != nil {
		return c.attempt(err, "experiment %s", e.Name)
	}
	id, err := c.experimentID(ctx, e)
	if err != nil {
		return c.attempt(err, "experiment %s", e.Name)
	}
	c.count.Experiments++
	c.leaveParts(e.Left, "experiment %s", e.Name)
	for _, t := range e.Tags {
		err := c.post(ctx, "mlflow/experiments/set-experiment-tag", map[string]string{"experiment_id": id, "key": t.Key, "value": t.Value}, nil)
		if err := c.attempt(err, "tag %s of experiment %s", t.Key, e.Name); err != nil {
			return err
		}
	}
	err = c.from.LoggedModels(ctx, e.ID, func(m *LoggedModel) error { return c.loggedModel(ctx, id, m) })
	if err := c.attempt(err, "logged models of experiment %s", e.Name); err != nil {
		return err
	}
	n := 0
	err = c.from.Runs(ctx, e.ID, func(r *Run) error {
		if n++; n%100 == 0 {
			c.Say("experiment %s: %d runs so far", clip(e.Name), n)
		}
		if r.Info.ID != "" && !isMLflowRun(r.Info.ID) {
			c.ids[r.Info.ID] = newID(e, r.Info.ID)
		}
		return c.run(ctx, id, r)
	})
	return c.attempt(err, "runs of experiment %s", e.Name)
}

func (c *copier) experimentID(ctx context.Context, e Experiment) (string, error) {
	var got struct {
		Experiment struct {
			ID    string `json:"experiment_id"`
			Stage string `json:"lifecycle_stage"`
		} `json:"experiment"`
	}
	err := c.to.Track(ctx, http.MethodGet, "mlflow/experiments/get-by-name?experiment_name="+url.QueryEscape(e.Name), nil, &got)
	switch {
	case err == nil && got.Experiment.Stage == "deleted":
		return "", berth.Errorf(berth.Precondition, "experiment %q was deleted in this workspace; restore it, then import its runs", e.Name)
	case err == nil:
		return got.Experiment.ID, nil
	case berth.CodeOf(err) != berth.NotFound:
		return "", err
	}
	var made struct {
		ID string `json:"experiment_id"`
	}
	err = c.post(ctx, "mlflow/experiments/create", map[string]string{"name": e.Name}, &made)
	return made.ID, err
}

// markOf is a mark of something as it is.
func markOf(v any) (string, error) {
	b, err := json.Marshal(v)
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:16]), err
}

// theirTags are tags without those of an import, which a workspace of Berth may have itself.
func theirTags(tags []Pair) []Pair {
	return slices.DeleteFunc(slices.Clone(tags), func(t Pair) bool { return t.Key == berth.TagImportDone || t.Key == berth.TagImportedFrom })
}

// sourceOf is what the source is called for something that is there with these tags. What came from
// another address of the source is of the same one.
func (c *copier) sourceOf(tags []Pair) string {
	for _, t := range tags {
		if t.Key == berth.TagImportedFrom && c.from.Same(t.Value) {
			return t.Value
		}
	}
	return c.from.Name()
}

// destination is a run or model in the workspace.
type destination struct {
	Info struct {
		URI   string `json:"artifact_uri"`
		Stage string `json:"lifecycle_stage"` // of a run
		Tags  []Pair `json:"tags"`
	} `json:"info"`
	Data struct {
		Tags []Pair `json:"tags"`
	} `json:"data"`
}

// isDone says whether what has these tags was brought over whole as mark has it.
func isDone(tags []Pair, mark string) bool {
	return slices.Contains(tags, Pair{berth.TagImportDone, mark})
}
