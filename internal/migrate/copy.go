package migrate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

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

// Counts is what was brought over.
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
	uris  map[string]string // where the files of runs are, by id
}

// Copy brings everything of a source that was not deleted into the workspace of a client.
func Copy(ctx context.Context, from Source, to *client.Client, o Options) (Counts, error) {
	c := &copier{Options: o, from: from, to: to, uris: map[string]string{}, count: Counts{NotImported: []string{}}}
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

// run brings over a run. It is marked as done if nothing of it was left behind.
func (c *copier) run(ctx context.Context, experiment string, r *Run) error {
	if err := cmp.Or(r.Err, checkName(r.Info.ID)); err != nil {
		return c.attempt(err, "run %s", r.Info.ID)
	}
	c.count.Runs++
	left := c.count.LeftBehind
	mark, err := markOf(r)
	if err != nil {
		return err
	}
	var got struct {
		Run destination `json:"run"`
	}
	err = c.to.Track(ctx, http.MethodGet, "mlflow/runs/get?run_id="+url.QueryEscape(r.Info.ID), nil, &got)
	switch {
	case err == nil && got.Run.Info.Stage == "deleted":
		c.uris[r.Info.ID] = got.Run.Info.URI // its files are there still
		c.leave("run %s: it was deleted in this workspace; restore it to import it again", r.Info.ID)
		return nil
	case err == nil && isDone(got.Run.Data.Tags, mark) && len(r.Left) == 0 && !c.Full:
		c.uris[r.Info.ID] = got.Run.Info.URI
		c.count.Unchanged++
		return nil
	case err != nil && berth.CodeOf(err) != berth.NotFound:
		return c.attempt(err, "run %s", r.Info.ID)
	}
	in := map[string]any{
		"run_id": r.Info.ID, "experiment_id": experiment, "run_name": r.Info.Name, "user_id": r.Info.User, "status": r.Info.Status, "start_time": r.Info.Start,
		"params": r.Data.Params, "tags": theirTags(r.Data.Tags), "from": c.from.Name(),
	}
	if r.Info.End != 0 {
		in["end_time"] = r.Info.End
	}
	if err := c.post(ctx, "berth/import/run", in, &got); err != nil {
		return c.attempt(err, "run %s", r.Info.ID)
	}
	c.leaveParts(r.Left, "run %s", r.Info.ID)
	c.uris[r.Info.ID] = got.Run.Info.URI
	if err := c.points(ctx, r); err != nil {
		return err
	}
	if err := c.links(ctx, r); err != nil {
		return err
	}
	if err := c.files(ctx, r.owner(), got.Run.Info.URI); err != nil {
		return err
	}
	if c.count.LeftBehind > left {
		return nil
	}
	return c.post(ctx, "mlflow/runs/set-tag", map[string]string{"run_id": r.Info.ID, "key": berth.TagImportDone, "value": mark}, nil)
}

// batch is how many points, datasets or models are sent at once: what a request may have.
const batch = 1000

// points brings over the points of a run.
func (c *copier) points(ctx context.Context, r *Run) error {
	for _, m := range r.Data.Metrics {
		err := c.from.History(ctx, r, m.Key, func(points []Metric) error {
			return c.log(ctx, "mlflow/runs/log-batch", map[string]any{"run_id": r.Info.ID}, points)
		})
		if err := c.attempt(err, "points of metric %s of run %s", m.Key, r.Info.ID); err != nil {
			return err
		}
	}
	return nil
}

// log sends points of a run or model, which in names, some at a time.
func (c *copier) log(ctx context.Context, path string, in map[string]any, points []Metric) error {
	for some := range slices.Chunk(points, batch) {
		in["metrics"] = some
		if err := c.post(ctx, path, in, nil); err != nil {
			return err
		}
		c.count.Points += len(some)
	}
	return nil
}

// maxLinkBytes bounds the datasets and models of one request, in bytes of what the source sent.
const maxLinkBytes = 2 << 20

// linked are the pieces of a list of datasets or models that fit into a request each.
func linked(list []json.RawMessage) (pieces [][]json.RawMessage) {
	for len(list) > 0 {
		n, size := 1, len(list[0])
		for n < len(list) && n < batch && size+len(list[n]) <= maxLinkBytes {
			size += len(list[n])
			n++
		}
		pieces = append(pieces, list[:n])
		list = list[n:]
	}
	return pieces
}

// links brings over which datasets and models a run read and made.
func (c *copier) links(ctx context.Context, r *Run) error {
	for _, l := range []struct {
		list             []json.RawMessage
		path, name, what string
	}{
		{r.Inputs.Datasets, "mlflow/runs/log-inputs", "datasets", "datasets"},
		{r.Inputs.Models, "mlflow/runs/log-inputs", "models", "model inputs"},
		{r.Outputs.Models, "mlflow/runs/outputs", "models", "model outputs"},
	} {
		for _, some := range linked(l.list) {
			err := c.post(ctx, l.path, map[string]any{"run_id": r.Info.ID, l.name: some}, nil)
			if err := c.attempt(err, "%s of run %s", l.what, r.Info.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// files brings over the files of a run or model that are not there yet.
func (c *copier) files(ctx context.Context, of Owner, uri string) error {
	all, err := c.from.Files(ctx, of)
	if err != nil || len(all) == 0 {
		return c.attempt(err, "files of %s", of)
	}
	root, ours := strings.CutPrefix(uri, "mlflow-artifacts:/")
	if !ours {
		c.leave("%d files of %s: their experiment keeps files at %s", len(all), of, uri)
		return nil
	}
	root = strings.TrimLeft(root, "/")
	there, err := walk(func(folder string) ([]listed, error) {
		var out struct {
			Files []listed `json:"files"`
		}
		path := "mlflow/artifacts/list?" + url.Values{"run_id": {of.Run}, "path": {folder}}.Encode()
		if of.Model != "" {
			path = "mlflow/logged-models/" + url.PathEscape(of.Model) + "/artifacts/directories?" + url.Values{"artifact_directory_path": {folder}}.Encode()
		}
		err := c.to.Track(ctx, http.MethodGet, path, nil, &out)
		return out.Files, err
	})
	if err != nil {
		return c.attempt(err, "files of %s", of)
	}
	have := make(map[File]bool, len(there))
	for _, f := range there {
		have[f] = true
	}
	for _, f := range all {
		if f.Err != nil {
			if err := c.attempt(f.Err, "file %s of %s", f.Path, of); err != nil {
				return err
			}
			continue
		}
		if have[f] && !c.Full {
			continue
		}
		n, err := c.put(ctx, root+"/"+f.Path, of, f)
		if err != nil {
			if err := c.attempt(err, "file %s of %s", f.Path, of); err != nil {
				return err
			}
			continue
		}
		c.count.Files++
		c.count.Bytes += n
	}
	return nil
}

// opened is a file of the source that is sent on. It keeps why it could not be read, which the
// error of sending does not say.
type opened struct {
	io.ReadCloser
	err    *atomic.Pointer[error]
	n      *atomic.Int64 // bytes that were read
	closed atomic.Bool
}

func (o *opened) Read(b []byte) (int, error) {
	n, err := o.ReadCloser.Read(b)
	o.n.Add(int64(n))
	if err != nil && err != io.EOF && !o.closed.Load() {
		o.err.Store(&err)
	}
	return n, err
}

func (o *opened) Close() error {
	o.closed.Store(true)
	return o.ReadCloser.Close()
}

// put brings over a file, and returns its size. It is read again where the connection to the source
// was lost.
func (c *copier) put(ctx context.Context, name string, of Owner, f File) (int64, error) {
	var lost atomic.Pointer[error]
	var n atomic.Int64
	err := c.to.PutArtifact(ctx, name, func() (io.ReadCloser, error) {
		if err := lost.Load(); err != nil && (leaves(*err) || errors.Is(*err, errTimeout)) {
			return nil, *err
		}
		lost.Store(nil)
		n.Store(0)
		r, err := c.from.Open(ctx, of, f)
		if err != nil {
			lost.Store(&err)
			return nil, err
		}
		return &opened{ReadCloser: r, err: &lost, n: &n}, nil
	})
	if reason := lost.Load(); err != nil && reason != nil {
		return 0, *reason
	}
	return n.Load(), err
}

// loggedModel brings over a logged model. It is marked as done if nothing of it was left behind.
func (c *copier) loggedModel(ctx context.Context, experiment string, m *LoggedModel) error {
	if err := cmp.Or(m.Err, checkName(m.Info.ID)); err != nil {
		return c.attempt(err, "logged model %s", m.Info.ID)
	}
	mark, err := markOf(m)
	if err != nil {
		return err
	}
	c.count.Logged++
	left := c.count.LeftBehind
	var got struct {
		Model destination `json:"model"`
	}
	path := "mlflow/logged-models/" + url.PathEscape(m.Info.ID)
	err = c.to.Track(ctx, http.MethodGet, path, nil, &got)
	if err == nil && isDone(got.Model.Info.Tags, mark) && len(m.Left) == 0 && !c.Full {
		return nil
	} else if err != nil && berth.CodeOf(err) != berth.NotFound {
		return c.attempt(err, "logged model %s", m.Info.ID)
	}
	in := map[string]any{
		"model_id": m.Info.ID, "experiment_id": experiment, "name": m.Info.Name, "model_type": m.Info.Type, "source_run_id": m.Info.Run,
		"creation_timestamp_ms": m.Info.Created, "last_updated_timestamp_ms": m.Info.Updated, "status": m.Info.Status, "status_message": m.Info.Message,
		"params": m.Data.Params, "tags": theirTags(m.Info.Tags), "from": c.from.Name(),
	}
	if err := c.post(ctx, "berth/import/logged-model", in, &got); err != nil {
		return c.attempt(err, "logged model %s", m.Info.ID)
	}
	c.leaveParts(m.Left, "logged model %s", m.Info.ID)
	// Not with the runs that measured them: these may be deleted, elsewhere or left behind.
	err = c.log(ctx, "berth/import/logged-model-metrics", map[string]any{"model_id": m.Info.ID}, m.Data.Metrics)
	if err := c.attempt(err, "metrics of logged model %s", m.Info.ID); err != nil {
		return err
	}
	if err := c.files(ctx, m.owner(), got.Model.Info.URI); err != nil {
		return err
	}
	if c.count.LeftBehind > left {
		return nil
	}
	return c.to.Track(ctx, http.MethodPatch, path+"/tags", map[string]any{"tags": []Pair{{berth.TagImportDone, mark}}}, nil)
}
