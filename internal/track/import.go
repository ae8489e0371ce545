package track

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/track/points"
)

// Runs and logged models that were made by another MLflow server keep their ids here, and versions
// of registered models their numbers: other runs, models and people name them by those. Bringing
// one over again changes what was brought over before and nothing else.

// isForeignRun reports whether id is one that MLflow gives a run.
func isForeignRun(id string) bool {
	return len(id) == 32 && strings.Trim(id, "0123456789abcdef") == ""
}

// isForeignModel reports whether id is one that MLflow gives a logged model.
func isForeignModel(id string) bool {
	rest, ok := strings.CutPrefix(id, "m-")
	return ok && isForeignRun(rest)
}

// An imported says that a run or logged model was brought over from another server.
type imported struct {
	// Imported is who brought it over; "" is for what began here.
	Imported string `json:",omitempty"`
	// ImportedFrom is where from. Runs and models that earlier servers imported do not have it.
	ImportedFrom string `json:",omitempty"`
}

// foreign reads what a thing brought over has: where it is from, its experiment, its parameters and
// tags.
func (c *call) foreign(id string, valid func(string) bool) (by imported, experiment string, params, tags map[string]string) {
	if !valid(id) {
		c.fail(invalid("Invalid id '%s': not an MLflow id", id))
	}
	experiment = c.need("experiment_id")
	for i, p := range c.pairs("params") {
		if err := checkParam(&p, fmt.Sprintf("params[%d].", i)); err != nil {
			c.fail(err)
		}
		setTag(&params, p)
	}
	for i, t := range c.pairs("tags") {
		if err := checkRunTag(&t, fmt.Sprintf("tags[%d].", i)); err != nil {
			c.fail(err)
		}
		setTag(&tags, t)
	}
	from := c.need("from")
	if err := checkLength("from", maxSource, from); err != nil {
		c.fail(err)
	}
	setTag(&tags, pair{berth.TagImportedFrom, from})
	return imported{c.who.User, from}, experiment, params, tags
}

// mayImport says whether the caller may bring something over again. Tags are everybody's to write,
// and do not count.
func (c *call) mayImport(by string) bool { return by != "" && (by == c.who.User || c.who.Admin) }

// again is what is kept of who brought something over that is here: old. Another source has no say
// in what has the same id, whoever asks.
func (c *call) again(id string, old, now imported) (imported, error) {
	if !c.mayImport(old.Imported) {
		return imported{}, wasHere(id)
	}
	if old.ImportedFrom != "" && old.ImportedFrom != now.ImportedFrom {
		return imported{}, refuse(alreadyExists, "%s was imported from %s; another source cannot change it", id, old.ImportedFrom)
	}
	return imported{old.Imported, now.ImportedFrom}, nil
}

func wasHere(id string) error {
	return refuse(alreadyExists, "%s already exists in this workspace and was not imported by you", id)
}

// with is what was brought over, and what was added here since.
func with(theirs, here map[string]string) map[string]string {
	for k, v := range here {
		if _, ok := theirs[k]; !ok && k != berth.TagImportDone {
			setTag(&theirs, pair{k, v})
		}
	}
	return theirs
}

// importRun writes a run of another server. Its points are logged afterwards, as any run's.
func importRun(c *call) (any, error) {
	r := &run{ID: c.runID(), Name: c.text("run_name"), User: c.text("user_id"), Status: c.need("status"), Stage: active, Start: c.int("start_time", 0)}
	c.checkRunStatus(r.Status)
	if c.has("end_time") {
		end := c.int("end_time", 0)
		r.End = &end
	}
	if err := cmp.Or(checkLength("run_name", maxTagValue, r.Name), checkLength("user_id", maxUser, r.User)); err != nil {
		c.fail(err)
	}
	var experiment string
	r.imported, experiment, r.Params, r.Tags = c.foreign(r.ID, isForeignRun)
	if err := c.done(); err != nil {
		return nil, err
	}
	err := c.update(c.ctx, func(x *change) error {
		e, err := x.findExperiment(experiment)
		if err != nil {
			return err
		}
		old, err := find[run](x, kindRuns, r.ID, "")
		if err == nil && old == nil {
			err = x.notOfJob(r.ID)
		}
		if err == nil && old != nil {
			old.follow(c.experiment(old.Experiment))
			r.imported, err = c.again(r.ID, old.imported, r.imported)
		}
		switch {
		case err != nil:
			return err
		case old != nil && old.Stage != active:
			return refuse(alreadyExists, "Run %s was deleted in this workspace", r.ID)
		case e.Stage != active:
			return invalid("The experiment %s must be in the 'active' state. Current state is %s.", e.ID, e.Stage)
		}
		r.settle(e)
		r.doc = nil
		if old != nil {
			r.stored, r.Experiment, r.URI, r.Stage, r.Deleted = old.stored, old.Experiment, old.URI, old.Stage, old.Deleted
			r.Staged = old.Staged
			r.Params, r.Tags = with(r.Params, old.Params), with(r.Tags, old.Tags)
			r.Datasets, r.Apart, r.ModelInputs, r.ModelOutputs = old.Datasets, old.Apart, old.ModelInputs, old.ModelOutputs
		}
		return x.save(r)
	})
	if err != nil {
		return nil, err
	}
	// Without its datasets, which may be long: who imports it asks where its files go.
	return map[string]any{"run": map[string]any{"info": c.runInfo(r)}}, nil
}

// foreignStatus reads the state of a logged model that is brought over. One without a state is
// ready.
func (c *call) foreignStatus() string {
	switch status := c.text("status"); {
	case status == "" || status == "LOGGED_MODEL_STATUS_UNSPECIFIED":
		return loggedReady
	case slices.Contains(loggedStates, status):
		return status
	default:
		c.fail(invalid("Invalid model status: %s. Expected statuses: [LOGGED_MODEL_PENDING, LOGGED_MODEL_READY, LOGGED_MODEL_UPLOAD_FAILED]", status))
		return ""
	}
}

// foreignPoints reads points of a logged model that is brought over. Unlike points that are logged,
// they are of the model alone, and the runs that measured them need not be here.
func (c *call) foreignPoints(model string) []points.Entry {
	if err := checkSizes(c.count("metrics"), 0, 0); err != nil {
		c.fail(err)
		return nil
	}
	var out []points.Entry
	for i, item := range c.items("metrics") {
		p, at := params{m: item}, fmt.Sprintf("metrics[%d].", i)
		m, run := metricOf(&p), p.text("run_id")
		m.Model = model
		if err := cmp.Or(p.err, checkMetric(&m, at), checkLength(at+"run_id", maxReference, run)); err != nil {
			c.fail(err)
		} else if strings.ContainsRune(run, 0) {
			c.fail(invalid("Invalid value for parameter '%srun_id' supplied: it contains a null character", at))
		}
		out = append(out, points.Entry{Owner: model, Key: m.modelKey(run), Point: m.Point})
	}
	return out
}

// importLogged writes a logged model of another server, and points of its metrics if the request
// has some, as clients before importLoggedPoints send them.
func importLogged(c *call) (any, error) {
	m := &loggedModel{
		ID: c.need("model_id"), Name: c.need("name"), Type: c.text("model_type"), Run: c.text("source_run_id"), Status: c.foreignStatus(),
		Message: c.text("status_message"), Created: c.int("creation_timestamp_ms", 0), Updated: c.int("last_updated_timestamp_ms", 0),
	}
	var experiment string
	m.imported, experiment, m.Params, m.Tags = c.foreign(m.ID, isForeignModel)
	measured := c.foreignPoints(m.ID)
	if err := c.mayLog(measured); err != nil { // before anything is written
		return nil, err
	}
	if err := cmp.Or(checkLength("name", maxTagValue, m.Name), checkLength("status_message", maxTagValue, m.Message), m.checkReferences()); err != nil {
		c.fail(err)
	}
	if err := c.done(); err != nil {
		return nil, err
	}
	err := c.update(c.ctx, func(x *change) error {
		e, err := x.findExperiment(experiment)
		if err != nil {
			return err
		}
		old, err := find[loggedModel](x, kindLogged, m.ID, "")
		if err == nil && old == nil { // points are kept by the ID of what has them
			err = cmp.Or(x.notOfJob(m.ID), x.notOfRun(m.ID))
		}
		if err == nil && old != nil {
			m.imported, err = c.again(m.ID, old.imported, m.imported)
		}
		switch {
		case err != nil:
			return err
		case old != nil && old.Deleted:
			return loggedDeleted(m.ID)
		}
		m.Experiment, m.URI, m.doc = e.ID, below(e.Location, "models", m.ID, "artifacts"), nil
		if old != nil {
			m.stored, m.Experiment, m.URI, m.Deleted = old.stored, old.Experiment, old.URI, old.Deleted
			v := old.Tags[tagModelVersions]
			m.Params, m.Tags = with(m.Params, old.Params), with(m.Tags, old.Tags)
			if v != "" {
				setTag(&m.Tags, pair{tagModelVersions, v})
			}
		}
		return x.save(m)
	})
	if err != nil {
		return nil, err
	}
	if err := c.saveForeign(measured); err != nil {
		return nil, err
	}
	return c.loggedAnswer(m)
}

// importLoggedPoints writes points of a logged model that the caller imported. It is a call of its
// own so that the document is not written again with each thousand of them.
func importLoggedPoints(c *call) (any, error) {
	id := c.need("model_id")
	measured := c.foreignPoints(id)
	if err := c.done(); err != nil {
		return nil, err
	}
	var m *loggedModel
	c.view(func(x *index) { m = x.logged[id] })
	switch {
	case m == nil:
		return nil, noLogged(id)
	case !c.mayImport(m.Imported):
		return nil, wasHere(id)
	case m.Deleted:
		return nil, loggedDeleted(id)
	}
	return empty, c.saveForeign(measured)
}

func loggedDeleted(id string) error {
	return refuse(alreadyExists, "Logged model %s was deleted in this workspace", id)
}

func (c *call) saveForeign(measured []points.Entry) error {
	if len(measured) == 0 {
		return nil
	}
	return c.logPoints(measured)
}
