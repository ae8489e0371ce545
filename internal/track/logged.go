package track

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/berthml/berth/internal/track/points"
)

// The states of a logged model, by number too.
var loggedStates = []string{"", "LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED"}

const (
	tagModelVersions = "mlflow.modelVersions"
	tagModelHistory  = "mlflow.log-model.history"
)

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
	return nil
}

func createLogged(c *call) (any, error) {
	m := &loggedModel{
		ID: "m-" + newID(), Name: c.text("name"), Type: c.text("model_type"), Run: c.text("source_run_id"), Status: loggedStates[1], Job: c.who.Job,
	}
	experiment := c.need("experiment_id")
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
	return c.loggedAnswer(m)
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

// loggedAnswer is a logged model as answers have it.
func (c *call) loggedAnswer(m *loggedModel) (any, error) {
	v, err := c.loggedView(m)
	return map[string]any{"model": v}, err
}

func (c *call) loggedView(m *loggedModel) (map[string]any, error) {
	info := map[string]any{
		"model_id": m.ID, "experiment_id": m.Experiment, "name": m.Name, "creation_timestamp_ms": m.Created,
		"last_updated_timestamp_ms": m.Updated, "artifact_uri": m.URI, "status": m.Status, "model_type": m.Type, "source_run_id": m.Run,
	}
	if m.Message != "" {
		info["status_message"] = m.Message
	}
	if len(m.Tags) > 0 {
		info["tags"] = pairsOf(m.Tags)
	}
	data := map[string]any{}
	if len(m.Params) > 0 {
		data["params"] = pairsOf(m.Params)
	}
	var metrics []metricView
	for _, s := range c.points.Latest(m.ID) {
		h, err := c.points.History(m.ID, s.Key)
		if err != nil {
			return nil, err
		}
		for _, p := range h {
			metrics = append(metrics, modelMetric(m.ID, s.Key, p))
		}
	}
	if len(metrics) > 0 {
		data["metrics"] = metrics
	}
	return map[string]any{"info": info, "data": data}, nil
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
		m.Status = name
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c.loggedAnswer(m)
}

func deleteLogged(c *call) (any, error) {
	_, err := c.changeLogged(c.path, func(x *change, m *loggedModel) error {
		m.Deleted = true
		return nil
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

// logModel is how clients before 3 tell of a model: it becomes a tag of the run.
func logModel(c *call) (any, error) {
	id, text := c.runID(), c.need("model_json")
	if err := c.done(); err != nil {
		return nil, err
	}
	v, err := parseJSON([]byte(text))
	m, ok := v.(object)
	if err != nil || !ok {
		return nil, invalid("Malformed model info. \n %s \n is not a valid JSON.", text)
	}
	var lacks []string
	for _, k := range []string{"artifact_path", "flavors", "utc_time_created", "run_id"} {
		if _, ok := m[k]; !ok {
			lacks = append(lacks, k)
		}
	}
	if lacks != nil {
		return nil, invalid("Model json is missing mandatory fields: %s", setOf(lacks))
	}
	return empty, c.changeRun(id, func(x *change, r *run) error {
		if err := r.mustBeActive(); err != nil {
			return err
		}
		var history []json.RawMessage
		if old := r.Tags[tagModelHistory]; old != "" && json.Unmarshal([]byte(old), &history) != nil {
			history = nil
		}
		b, err := json.Marshal(append(history, json.RawMessage(text)))
		if err != nil {
			return invalid("Malformed model info. \n %s \n is not a valid JSON.", text)
		}
		if len(b) > maxTagValue {
			return invalid("The models of run %s take more than %d characters to describe", id, maxTagValue)
		}
		r.setTag(pair{tagModelHistory, string(b)})
		return nil
	})
}

var loggedGrammar = &grammar{
	entities: map[string]subject{"metrics": metricOfRun, "params": paramOfRun, "tags": tagOf, "attributes": attribute},
	attributes: map[string]bool{
		"name": false, "model_id": false, "model_type": false, "status": false, "source_run_id": false,
		"creation_timestamp_ms": true, "last_updated_timestamp_ms": true,
	},
	lists: func(s subject, key string) (string, bool) { return notAList(key), s == attribute },
	alias: map[string]string{
		"creation_timestamp": "creation_timestamp_ms", "creation_time": "creation_timestamp_ms",
		"last_updated_timestamp": "last_updated_timestamp_ms", "last_updated_time": "last_updated_timestamp_ms",
	},
}

// A scope narrows metrics to those that were measured on a dataset.
type scope struct{ name, digest string }

func (s scope) covers(v metricView) bool {
	return (s.name == "" || s.name == v.Dataset) && (s.digest == "" || s.digest == v.Digest)
}

// loggedMetric is the latest value of a metric of a model, on one of the datasets where there are any.
func (c *call) loggedMetric(m *loggedModel, key string, on []scope) (points.Point, bool) {
	var best points.Point
	found := false
	for _, s := range c.points.Latest(m.ID) {
		v := modelMetric(m.ID, s.Key, s.Latest)
		if key != "" && v.Key != key || len(on) > 0 && !slices.ContainsFunc(on, func(x scope) bool { return x.covers(v) }) {
			continue
		}
		if !found || s.Latest.Timestamp > best.Timestamp {
			best, found = s.Latest, true
		}
	}
	return best, found
}

func (m *loggedModel) attribute(key string) string {
	switch key {
	case "name":
		return m.Name
	case "model_id":
		return m.ID
	case "model_type":
		return m.Type
	case "source_run_id":
		return m.Run
	case "status":
		return strings.TrimPrefix(m.Status, "LOGGED_MODEL_")
	}
	return ""
}

func (c *call) loggedMatches(m *loggedModel, k *clause, on []scope) bool {
	switch k.of {
	case metricOfRun:
		p, has := c.loggedMetric(m, k.key, on)
		return k.matchesNumber(p.Value, has)
	case paramOfRun:
		v, has := m.Params[k.key]
		return k.matches(v, has)
	case tagOf:
		v, has := m.Tags[k.key]
		return k.matches(v, has)
	}
	switch k.key {
	case "creation_timestamp_ms":
		return k.matchesNumber(float64(m.Created), true)
	case "last_updated_timestamp_ms":
		return k.matchesNumber(float64(m.Updated), true)
	case "status":
		return k.matches(m.attribute(k.key), true) || k.matches(m.Status, true)
	}
	return k.matches(m.attribute(k.key), true)
}

// loggedOrder is one of the things logged models are sorted by.
type loggedOrder struct {
	order
	on []scope
}

func (p *params) loggedOrders() []loggedOrder {
	var out []loggedOrder
	for _, m := range p.items("order_by") {
		q := params{m: m}
		name := q.text("field_name")
		desc := q.has("ascending") && !q.bool("ascending")
		o := loggedOrder{order: order{desc: desc}}
		if d := (scope{q.text("dataset_name"), q.text("dataset_digest")}); d.name != "" {
			o.on = []scope{d}
		} else if d.digest != "" {
			p.fail(invalid("`dataset_digest` can only be specified if `dataset_name` is also specified."))
		}
		if q.err != nil {
			p.fail(q.err)
		}
		entity, key, dotted := strings.Cut(name, ".")
		switch {
		case name == "":
			p.fail(invalid("`field_name` in the `order_by` clause must be specified."))
		case dotted && entity == "metrics":
			o.of = metricOfRun
			o.key, _ = unquote(key, "`\"")
		case dotted:
			p.fail(invalid("Invalid order by field name: %s, only `metrics.<name>` is allowed.", entity))
		default:
			_, key, err := loggedGrammar.identify(name, loggedGrammar.searchable())
			if err != nil {
				p.fail(invalid("Invalid order by field name: %s.", name))
			}
			o.key = key
		}
		out = append(out, o)
	}
	return out
}

func (c *call) loggedRank(m *loggedModel, o loggedOrder) rank {
	if o.of == metricOfRun {
		p, has := c.loggedMetric(m, o.key, o.on)
		return numberRank(p.Value, has)
	}
	switch o.key {
	case "creation_timestamp_ms":
		return numberRank(float64(m.Created), true)
	case "last_updated_timestamp_ms":
		return numberRank(float64(m.Updated), true)
	}
	return textRank(m.attribute(o.key), true)
}

func searchLogged(c *call) (any, error) {
	ids, filter, token := c.texts("experiment_ids"), c.text("filter"), c.text("page_token")
	if len(ids) == 0 {
		c.fail(required("experiment_ids"))
	}
	limit := c.limit(100, 50000)
	orders := c.loggedOrders()
	var on []scope
	for _, d := range c.items("datasets") {
		q := params{m: d}
		on = append(on, scope{q.text("dataset_name"), q.text("dataset_digest")})
		if on[len(on)-1].name == "" {
			c.fail(invalid("`dataset_name` in the `datasets` clause must be specified."))
		}
	}
	if err := c.done(); err != nil {
		return nil, err
	}
	clauses, err := loggedGrammar.parse(filter)
	if err != nil {
		return nil, err
	}
	query := queryOf(ids, filter, fmt.Sprint(orders))
	from, err := offset(token, query)
	if err != nil {
		return nil, err
	}
	models := c.selectLogged(ids, clauses, on)
	if len(orders) > 0 {
		plain := make([]order, len(orders))
		for i, o := range orders {
			plain[i] = order{of: subject(i), desc: o.desc} // the rank finds the order by its place
		}
		models = sortBy(models, plain, func(m *loggedModel, o order) rank { return c.loggedRank(m, orders[o.of]) })
	}
	models, next := page(models, from, limit, query)
	views := make([]any, len(models))
	for i, m := range models {
		if views[i], err = c.loggedView(m); err != nil {
			return nil, err
		}
	}
	return paged("models", views, next), nil
}

func (c *call) selectLogged(ids []string, clauses []clause, on []scope) []*loggedModel {
	onMetric := slices.ContainsFunc(clauses, func(k clause) bool { return k.of == metricOfRun })
	var all, out []*loggedModel
	c.view(func(x *index) {
		for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
			all = append(all, x.loggedOf[id]...)
		}
	})
	slices.SortFunc(all, func(a, b *loggedModel) int { return laterLogged(b, a) })
	for _, m := range all {
		if m.Deleted || c.mayReadLogged(m) != nil {
			continue
		}
		if len(on) > 0 && !onMetric {
			if _, has := c.loggedMetric(m, "", on); !has {
				continue
			}
		}
		if !slices.ContainsFunc(clauses, func(k clause) bool { return !c.loggedMatches(m, &k, on) }) {
			out = append(out, m)
		}
	}
	return out
}
