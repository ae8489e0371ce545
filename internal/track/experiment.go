package track

import (
	"net/url"
	"path"
	"strconv"
	"strings"
)

// defaultExperiment is there without having been made, until something about it changes.
func (w *workspace) defaultExperiment() *experiment {
	at := w.Created.UnixMilli()
	return &experiment{ID: "0", Name: "Default", Location: artifactRoot("0"), Stage: active, Created: at, Updated: at}
}

// artifactRoot is where the files of an experiment's runs are. Without a host it means this server,
// and inherits its token.
func artifactRoot(experiment string) string { return "mlflow-artifacts:/" + experiment }

// findExperiment reads an experiment in a change.
func (c *change) findExperiment(id string) (*experiment, error) {
	if _, err := strconv.ParseInt(id, 10, 64); err != nil {
		return nil, invalid("Invalid experiment ID '%s'. Experiment ID must be a valid integer.", id)
	}
	e, err := find[experiment](c, kindExperiments, id, "")
	if err == nil && e == nil && id == "0" {
		e = c.w.defaultExperiment()
	}
	if err == nil && e == nil {
		err = noExperiment(id)
	}
	return e, err
}

func noExperiment(id string) error { return missing("No Experiment with id=%s exists", id) }

// experimentOf is an experiment as it is now, if the caller may see it.
func (c *call) experimentOf(id string) (*experiment, error) {
	if _, err := strconv.ParseInt(id, 10, 64); err != nil {
		return nil, invalid("Invalid experiment ID '%s'. Experiment ID must be a valid integer.", id)
	}
	e := c.experiment(id)
	if e == nil {
		return nil, noExperiment(id)
	}
	return e, c.mayExperiment(id)
}

// nameIsFree refuses a name that another experiment than id has.
func (c *change) nameIsFree(name, id string) error {
	old, err := findNamed[experiment](c, kindExperiments, name)
	if err == nil && old == nil && name == "Default" { // it may not be written yet, or have another name by now
		old, err = c.findExperiment("0")
	}
	if err == nil && old != nil && old.Name == name && old.ID != id {
		return refuse(alreadyExists, "Experiment(name=%s) already exists.", name)
	}
	return err
}

// newExperiment makes an experiment in a change.
func (c *change) newExperiment(name, location string, tags []pair) (*experiment, error) {
	if err := c.nameIsFree(name, ""); err != nil {
		return nil, err
	}
	n, err := find[counters](c, kindCounters, "counters", "")
	if err != nil {
		return nil, err
	}
	if n == nil {
		n = &counters{}
	}
	n.Experiment++
	if err := c.save(n); err != nil {
		return nil, err
	}
	id := strconv.FormatInt(n.Experiment, 10)
	at := c.now()
	e := &experiment{ID: id, Name: name, Location: location, Stage: active, Created: at, Updated: at}
	if location == "" {
		e.Location = artifactRoot(id)
	}
	for _, t := range tags {
		setTag(&e.Tags, t)
	}
	return e, c.save(e)
}

func setTag(m *map[string]string, t pair) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[t.Key] = t.Value
}

func checkExperimentName(name string) error {
	if name == "" {
		return invalid("Invalid experiment name: ''")
	}
	return checkLength("name", maxExperimentName, name)
}

// checkLocation refuses artifact locations that cannot have runs below them.
func (c *call) checkLocation(location string) (string, error) {
	if location == "" {
		return "", nil
	}
	location = plainScheme(location)
	base, query, _ := strings.Cut(location, "?")
	if strings.Contains(location, "#") || strings.Contains(path.Base(base), ";") {
		return "", invalid("'artifact_location' URL can't include fragments or params.")
	}
	q, err := url.QueryUnescape(query)
	if err != nil || strings.Contains(q, "..") {
		return "", invalid("Invalid query string: %s", query)
	}
	switch schemeOf(location) {
	case "runs":
		return "", invalid("Artifact location cannot be a runs:/ URI. Given: '%s'", location)
	case artifactScheme: // below it the server finds whose a file is by the path
		p, ours := proxied(location)
		if safe, err := safePath(p); !ours || err != nil || safe != p || p == "" || strings.ContainsAny(p, "/%?") {
			return "", invalid("Invalid artifact location: '%s'. On this server it has one name and nothing else: mlflow-artifacts:/NAME.", location)
		}
	}
	if !fit(location, c.s.Locator.Zone) {
		return "", unfit("artifact location", location)
	}
	if len(location) > 2048 {
		return "", invalid("Invalid artifact path length. The length of the artifact path cannot be greater than 2048 characters.")
	}
	return location, nil
}

func createExperiment(c *call) (any, error) {
	name, given, tags := c.need("name"), c.text("artifact_location"), c.pairs("tags")
	if err := c.done(); err != nil {
		return nil, err
	}
	if err := checkExperimentName(name); err != nil {
		return nil, err
	}
	location, err := c.checkLocation(given)
	if err != nil {
		return nil, err
	}
	for _, t := range tags {
		if err := checkTag(t, maxExperimentTagValue); err != nil {
			return nil, err
		}
	}
	var e *experiment
	err = c.update(c.ctx, func(x *change) error {
		if err := x.mayCreateExperiment(c.who); err != nil {
			return err
		}
		var err error
		e, err = x.newExperiment(name, location, tags)
		return err
	})
	if err != nil {
		return nil, err
	}
	return map[string]string{"experiment_id": e.ID}, nil
}

// view is an experiment as answers have it.
func (e *experiment) view() map[string]any {
	m := map[string]any{
		"experiment_id": e.ID, "name": e.Name, "artifact_location": e.Location, "lifecycle_stage": e.Stage,
		"creation_time": e.Created, "last_update_time": e.Updated,
	}
	if len(e.Tags) > 0 {
		m["tags"] = pairsOf(e.Tags)
	}
	return m
}

func getExperiment(c *call) (any, error) {
	id := c.need("experiment_id")
	if err := c.done(); err != nil {
		return nil, err
	}
	e, err := c.experimentOf(id)
	if err != nil {
		return nil, err
	}
	return map[string]any{"experiment": e.view()}, nil
}

func getExperimentByName(c *call) (any, error) {
	name := c.need("experiment_name")
	if err := c.done(); err != nil {
		return nil, err
	}
	var e *experiment
	c.view(func(x *index) { e = x.named[name] })
	if e == nil || c.mayExperiment(e.ID) != nil {
		return nil, missing("Could not find experiment with name '%s'", name)
	}
	return map[string]any{"experiment": e.view()}, nil
}

// changeExperiment changes one experiment.
func (c *call) changeExperiment(id string, fn func(*change, *experiment) error) (any, error) {
	if err := c.done(); err != nil {
		return nil, err
	}
	if err := c.mayExperiment(id); err != nil {
		return nil, err
	}
	err := c.update(c.ctx, func(x *change) error {
		e, err := x.findExperiment(id)
		if err != nil {
			return err
		}
		if err := fn(x, e); err != nil {
			return err
		}
		return x.save(e)
	})
	if err != nil {
		return nil, err
	}
	return empty, nil
}

func updateExperiment(c *call) (any, error) {
	id, name := c.need("experiment_id"), c.need("new_name")
	if err := checkExperimentName(name); err != nil {
		c.fail(err)
	}
	return c.changeExperiment(id, func(x *change, e *experiment) error {
		if e.Stage != active {
			return refuse(invalidState, "Cannot rename a non-active experiment.")
		}
		if e.Name == name {
			return nil
		}
		if err := x.nameIsFree(name, id); err != nil {
			return err
		}
		e.Name, e.Updated = name, x.now()
		return nil
	})
}

func setExperimentTag(c *call) (any, error) {
	id, t := c.need("experiment_id"), pair{c.need("key"), c.text("value")}
	if err := checkTag(t, maxExperimentTagValue); err != nil {
		c.fail(err)
	}
	return c.changeExperiment(id, func(x *change, e *experiment) error {
		if e.Stage != active {
			return invalid("The experiment %s must be in the 'active' state. Current state is %s.", id, e.Stage)
		}
		setTag(&e.Tags, t)
		return nil
	})
}

func deleteExperimentTag(c *call) (any, error) {
	id, key := c.need("experiment_id"), c.need("key")
	return c.changeExperiment(id, func(x *change, e *experiment) error {
		if e.Stage != active {
			return invalid("The experiment %s must be in the 'active' state. Current state is %s.", id, e.Stage)
		}
		if _, ok := e.Tags[key]; !ok {
			return missing("No tag with name: %s in experiment with id %s", key, id)
		}
		delete(e.Tags, key)
		return nil
	})
}

// below is a place below an artifact location, whose query stays at the end.
func below(location string, parts ...string) string {
	base, query, has := strings.Cut(location, "?")
	out := strings.TrimSuffix(base, "/") + "/" + path.Join(parts...)
	if has {
		out += "?" + query
	}
	return out
}
