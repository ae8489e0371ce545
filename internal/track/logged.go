package track

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/berthml/berth/internal/track/points"
)

// The states of a logged model.
const (
	loggedPending = "LOGGED_MODEL_PENDING"
	loggedReady   = "LOGGED_MODEL_READY"
	loggedFailed  = "LOGGED_MODEL_UPLOAD_FAILED"
)

// loggedStates are the states by their numbers.
var loggedStates = []string{"", loggedPending, loggedReady, loggedFailed}

const tagModelVersions = "mlflow.modelVersions"

func noLogged(id string) error { return missing("Logged model with ID '%s' not found.", id) }

// loggedOf is a logged model as it is now, if the caller may see it.
func (c *call) loggedOf(id string, alsoDeleted bool) (*loggedModel, error) {
	var m *loggedModel
	c.view(func(x *index) { m = x.logged[id] })
	if m == nil || m.Deleted && !alsoDeleted {
		return nil, noLogged(id)
	}
	return m, c.mayReadLogged(m)
}

func checkLoggedName(name string) error {
	if name == "" || strings.ContainsAny(name, `/:.%"'`) {
		return invalid(`Invalid model name ('%s') provided. Model name must be a non-empty string and cannot contain the following `+
			`characters: ('/', ':', '.', '%%', '"', "'")`, name)
	}
	return checkLength("name", maxTagValue, name)
}

func (m *loggedModel) checkReferences() error {
	return cmp.Or(checkLength("model_type", maxReference, m.Type), checkLength("source_run_id", maxReference, m.Run))
}

func createLogged(c *call) (any, error) {
	m := &loggedModel{
		ID: "m-" + newID(), Name: c.text("name"), Type: c.text("model_type"), Run: c.text("source_run_id"), Status: loggedPending, origin: c.who.origin(),
	}
	experiment := c.need("experiment_id")
	if err := m.checkReferences(); err != nil {
		c.fail(err)
	}
	for _, p := range c.pairs("params") {
		if err := checkLoggedParam(p); err != nil {
			c.fail(err)
		}
		setTag(&m.Params, p)
	}
	for _, t := range c.pairs("tags") {
		if err := checkRunTag(&t, ""); err != nil {
			c.fail(err)
		}
		setTag(&m.Tags, t)
	}
	if m.Name == "" {
		m.Name = randomName()
	} else if err := checkLoggedName(m.Name); err != nil {
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
		if err := c.mayExperiment(experiment); err != nil {
			return err
		}
		if e.Stage != active {
			return invalid("The experiment %s must be in the 'active' state. Current state is %s.", e.ID, e.Stage)
		}
		m.Created = x.now()
		m.Updated, m.Experiment, m.URI, m.doc = m.Created, e.ID, below(e.Location, "models", m.ID, "artifacts"), nil
		return x.save(m)
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"model": c.loggedView(m)}, nil
}

func checkLoggedParam(p pair) error {
	if err := checkKey(p.Key, "key"); err != nil {
		return err
	}
	if err := checkLength("Param key", maxKey, p.Key); err != nil {
		return err
	}
	return checkLength("Param value", maxParamValue, p.Value)
}

// loggedAnswer answers with a logged model.
func (c *call) loggedAnswer(m *loggedModel) (any, error) {
	room := maxModelPoints
	return c.sendOne("model", func(out *listWriter) error { return c.addLogged(out, m, &room) })
}

// maxModelPoints bounds the points of whole metrics in an answer about logged models. Of each
// metric that has more than are left, the answer has the latest point, which does not count.
const maxModelPoints = 25_000

// addLogged writes a logged model as answers have it.
func (c *call) addLogged(out *listWriter, m *loggedModel, room *int) error {
	done, err := c.turnFor(m.size + c.seriesSize(m.ID))
	if err != nil {
		return err
	}
	defer done()
	return out.addWith(c.loggedView(m), func(add func(metricView) error) error { return c.modelMetrics(m, room, add) })
}

// modelMetrics are the points of a model's metrics, as many as there is room for.
func (c *call) modelMetrics(m *loggedModel, room *int, add func(metricView) error) error {
	for _, s := range c.points.Latest(m.ID) {
		if s.Count > int64(*room) {
			if err := add(modelMetric(m.ID, s.Key, s.Latest)); err != nil {
				return err
			}
			continue
		}
		r, err := c.reader(m.ID, s.Key)
		if err != nil {
			return err
		}
		err = c.pieces(r, func(p []points.Point) (bool, error) {
			*room -= len(p)
			for _, q := range p {
				if err := add(modelMetric(m.ID, s.Key, q)); err != nil {
					return false, err
				}
			}
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

type loggedView struct {
	Info map[string]any `json:"info"`
	Data struct {
		Params []pair `json:"params,omitempty"`
	} `json:"data"` // the last, see [listWriter.addWith]
}

// loggedView is a logged model as answers have it, without its metrics.
func (c *call) loggedView(m *loggedModel) loggedView {
	v := loggedView{Info: map[string]any{
		"model_id": m.ID, "experiment_id": m.Experiment, "name": m.Name, "creation_timestamp_ms": m.Created,
		"last_updated_timestamp_ms": m.Updated, "artifact_uri": c.shownBelow(m.URI, m.Experiment, m.ID), "status": m.Status, "model_type": m.Type, "source_run_id": m.Run,
	}}
	if m.Message != "" {
		v.Info["status_message"] = m.Message
	}
	if len(m.Tags) > 0 {
		v.Info["tags"] = pairsOf(m.Tags)
	}
	v.Data.Params = pairsOf(m.Params)
	return v
}

func getLogged(c *call) (any, error) {
	m, err := c.loggedOf(c.path, c.text("allow_deleted") == "true")
	if err != nil {
		return nil, err
	}
	return c.loggedAnswer(m)
}

// changeLogged changes a logged model.
func (c *call) changeLogged(id string, fn func(*change, *loggedModel) error) (*loggedModel, error) {
	if err := c.done(); err != nil {
		return nil, err
	}
	var after *loggedModel
	err := c.update(c.ctx, func(x *change) error {
		m, err := find[loggedModel](x, kindLogged, id, "")
		if err != nil {
			return err
		}
		if m == nil || m.Deleted || m.ID != id {
			return noLogged(id)
		}
		if err := c.mayLogged(m); err != nil {
			return err
		}
		if err := fn(x, m); err != nil {
			return err
		}
		m.Updated = x.now()
		after = m
		return x.save(m)
	})
	return after, err
}

func finalizeLogged(c *call) (any, error) {
	status, _ := c.get("status")
	name, _ := status.(string)
	if n, ok := intOf(status); ok && n > 0 && n < int64(len(loggedStates)) {
		name = loggedStates[n]
	}
	if name == "" {
		c.fail(required("status"))
	} else if !slices.Contains(loggedStates, name) {
		c.fail(invalid("Invalid model status: %s. Expected statuses: [LOGGED_MODEL_READY, LOGGED_MODEL_UPLOAD_FAILED]", name))
	}
	m, err := c.changeLogged(c.path, func(x *change, m *loggedModel) error {
		x.state, m.Status = true, name
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c.loggedAnswer(m)
}

func deleteLogged(c *call) (any, error) {
	_, err := c.changeLogged(c.path, func(x *change, m *loggedModel) error {
		x.state, m.Deleted = true, true
		return c.mayDelete(x, file{model: m})
	})
	return empty, err
}

func setLoggedTags(c *call) (any, error) {
	tags := c.pairs("tags")
	for i := range tags {
		if err := checkRunTag(&tags[i], ""); err != nil {
			c.fail(err)
		}
	}
	m, err := c.changeLogged(c.path, func(x *change, m *loggedModel) error {
		for _, t := range tags {
			setTag(&m.Tags, t)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c.loggedAnswer(m)
}

func deleteLoggedTag(c *call) (any, error) {
	id, escaped, _ := strings.Cut(c.path, "/")
	key, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, invalid("Invalid tag key '%s'", escaped)
	}
	_, err = c.changeLogged(id, func(x *change, m *loggedModel) error {
		if _, ok := m.Tags[key]; !ok {
			return missing("No tag with key '%s' found for model with ID '%s'.", key, id)
		}
		delete(m.Tags, key)
		return nil
	})
	return empty, err
}

func logLoggedParams(c *call) (any, error) {
	params := c.pairs("params")
	c.need("model_id")
	for _, p := range params {
		if err := checkLoggedParam(p); err != nil {
			c.fail(err)
		}
	}
	_, err := c.changeLogged(c.path, func(x *change, m *loggedModel) error {
		for _, p := range params {
			if old, ok := m.Params[p.Key]; ok && old != p.Value {
				return invalid("Changing param values is not allowed. Param with key='%s' was already logged with value='%s' for model ID='%s'. "+
					"Attempted logging new value '%s'.", p.Key, old, m.ID, p.Value)
			}
			setTag(&m.Params, p)
		}
		return nil
	})
	return empty, err
}
