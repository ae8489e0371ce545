package migrate

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"

	"github.com/berthml/berth"
)

// run brings over a run. It is marked as done if nothing of it was left behind.
func (c *copier) run(ctx context.Context, experiment string, r *Run) error {
	if err := cmp.Or(r.Err, checkName(r.Info.ID)); err != nil {
		return c.attempt(err, "run %s", r.Info.ID)
	}
	left := c.count.LeftBehind
	mark, err := markOf(r)
	if err != nil {
		return err
	}
	var got struct {
		Run destination `json:"run"`
	}
	id := cmp.Or(c.ids[r.Info.ID], r.Info.ID)
	err = c.to.Track(ctx, http.MethodGet, "mlflow/runs/get?run_id="+id, nil, &got)
	switch {
	case err == nil && got.Run.Info.Stage == "deleted":
		c.uris[r.Info.ID] = got.Run.Info.URI // its files are there still
		c.leave("run %s: it was deleted in this workspace; restore it to import it again", r.Info.ID)
		return nil
	case err == nil && isDone(got.Run.Data.Tags, mark) && len(r.Left) == 0 && !c.Full:
		c.uris[r.Info.ID] = got.Run.Info.URI
		c.count.Runs++
		c.count.Unchanged++
		return nil
	case err != nil && berth.CodeOf(err) != berth.NotFound:
		return c.attempt(err, "run %s", r.Info.ID)
	}
	tags, err := c.runTags(ctx, r, id)
	if err != nil {
		return err
	}
	in := map[string]any{
		"run_id": id, "experiment_id": experiment, "run_name": r.Info.Name, "user_id": r.Info.User, "status": r.Info.Status, "start_time": r.Info.Start,
		"params": r.Data.Params, "tags": tags, "from": c.sourceOf(got.Run.Data.Tags),
	}
	if r.Info.End != 0 {
		in["end_time"] = r.Info.End
	}
	if err := c.post(ctx, "berth/import/run", in, &got); err != nil {
		return c.attempt(err, "run %s", r.Info.ID)
	}
	c.count.Runs++
	c.leaveParts(r.Left, "run %s", r.Info.ID)
	c.uris[r.Info.ID] = got.Run.Info.URI
	if err := c.points(ctx, r, id); err != nil {
		return err
	}
	if err := c.links(ctx, r, id); err != nil {
		return err
	}
	if err := c.files(ctx, r.owner(), Owner{Run: id}, got.Run.Info.URI); err != nil {
		return err
	}
	if c.count.LeftBehind > left {
		return nil
	}
	return c.post(ctx, "mlflow/runs/set-tag", map[string]string{"run_id": id, "key": berth.TagImportDone, "value": mark}, nil)
}

// batch is how many points, datasets or models are sent at once: what a request may have.
const batch = 1000

// points brings over the points of a run, which has an id in the workspace.
func (c *copier) points(ctx context.Context, r *Run, id string) error {
	for _, m := range r.Data.Metrics {
		err := c.from.History(ctx, r, m.Key, func(points []Metric) error {
			return c.log(ctx, "mlflow/runs/log-batch", map[string]any{"run_id": id}, points)
		})
		if err := c.attempt(err, "points of metric %s of run %s", m.Key, r.Info.ID); err != nil {
			return err
		}
	}
	return nil
}

// log sends points of a run or model, which in names, some at a time.
func (c *copier) log(ctx context.Context, path string, in map[string]any, points []Metric) error {
	for i, p := range points {
		var err error
		if points[i].Run, err = c.runID(ctx, p.Run); err != nil {
			return err
		}
	}
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
func (c *copier) links(ctx context.Context, r *Run, id string) error {
	for _, l := range []struct {
		list             []json.RawMessage
		path, name, what string
	}{
		{r.Inputs.Datasets, "mlflow/runs/log-inputs", "datasets", "datasets"},
		{r.Inputs.Models, "mlflow/runs/log-inputs", "models", "model inputs"},
		{r.Outputs.Models, "mlflow/runs/outputs", "models", "model outputs"},
	} {
		for _, some := range linked(l.list) {
			err := c.post(ctx, l.path, map[string]any{"run_id": id, l.name: some}, nil)
			if err := c.attempt(err, "%s of run %s", l.what, r.Info.ID); err != nil {
				return err
			}
		}
	}
	return nil
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
	left := c.count.LeftBehind
	var got struct {
		Model destination `json:"model"`
	}
	path := "mlflow/logged-models/" + url.PathEscape(m.Info.ID)
	err = c.to.Track(ctx, http.MethodGet, path, nil, &got)
	if err == nil && isDone(got.Model.Info.Tags, mark) && len(m.Left) == 0 && !c.Full {
		c.count.Logged++
		c.uris[m.Info.ID], c.logged[m.Info.ID] = got.Model.Info.URI, true
		return nil
	} else if err != nil && berth.CodeOf(err) != berth.NotFound {
		return c.attempt(err, "logged model %s", m.Info.ID)
	}
	source, err := c.runID(ctx, m.Info.Run)
	if err != nil {
		return err
	}
	in := map[string]any{
		"model_id": m.Info.ID, "experiment_id": experiment, "name": m.Info.Name, "model_type": m.Info.Type, "source_run_id": source,
		"creation_timestamp_ms": m.Info.Created, "last_updated_timestamp_ms": m.Info.Updated, "status": m.Info.Status, "status_message": m.Info.Message,
		"params": m.Data.Params, "tags": theirTags(m.Info.Tags), "from": c.sourceOf(got.Model.Info.Tags),
	}
	if err := c.post(ctx, "berth/import/logged-model", in, &got); err != nil {
		return c.attempt(err, "logged model %s", m.Info.ID)
	}
	c.count.Logged++
	c.uris[m.Info.ID], c.logged[m.Info.ID] = got.Model.Info.URI, true
	c.leaveParts(m.Left, "logged model %s", m.Info.ID)
	// Not with the runs that measured them: these may be deleted, elsewhere or left behind.
	err = c.log(ctx, "berth/import/logged-model-metrics", map[string]any{"model_id": m.Info.ID}, m.Data.Metrics)
	if err := c.attempt(err, "metrics of logged model %s", m.Info.ID); err != nil {
		return err
	}
	if err := c.files(ctx, m.owner(), m.owner(), got.Model.Info.URI); err != nil {
		return err
	}
	if c.count.LeftBehind > left {
		return nil
	}
	return c.to.Track(ctx, http.MethodPatch, path+"/tags", map[string]any{"tags": []Pair{{berth.TagImportDone, mark}}}, nil)
}
