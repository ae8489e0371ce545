package track

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/berthml/berth/internal/locate"
)

// tagPrompt marks the registered models that are prompts, which searches hide.
const tagPrompt = "mlflow.prompt.is_prompt"

func noRegistered(name string) error { return missing("Registered Model with name=%s not found", name) }

func checkModelName(name, at string) error {
	if strings.TrimSpace(name) == "" {
		return invalid("Missing value for required parameter '%s'.", at)
	}
	if strings.ContainsAny(name, "/:") {
		return invalid("Invalid model name '%s'. Names cannot contain '/' or ':'.", name)
	}
	if norm := path.Clean(name); norm != name || norm == "." || strings.HasPrefix(norm, "..") {
		return invalid("Invalid value %s for parameter 'name' supplied: Names may be treated as files in certain cases, and must not "+
			"resolve to other names when treated as such. This name would resolve to '%s'", dump(name), norm)
	}
	return checkLength("name", 256, name)
}

// findRegistered reads a registered model in a change.
func (c *change) findRegistered(name string) (*registered, error) {
	m, err := findNamed[registered](c, kindRegistered, name)
	if err == nil && m == nil {
		err = noRegistered(name)
	}
	return m, err
}

// registeredOf is a registered model as it is now, with its versions.
func (c *call) registeredOf(name string) (m *registered, versions []*version, err error) {
	c.view(func(x *index) {
		if m = x.models[name]; m != nil {
			versions = slices.Clone(x.versions[m.ID])
		}
	})
	if m == nil {
		return nil, nil, noRegistered(name)
	}
	return m, versions, nil
}

type aliasView struct {
	Alias   string `json:"alias"`
	Version string `json:"version"`
}

// registeredView is a registered model as answers have it.
func registeredView(m *registered, versions []*version) map[string]any {
	v := map[string]any{"name": m.Name, "creation_timestamp": m.Created, "last_updated_timestamp": m.Updated}
	if m.Description != "" {
		v["description"] = m.Description
	}
	if len(m.Tags) > 0 {
		v["tags"] = pairsOf(m.Tags)
	}
	var aliases []aliasView
	for _, a := range sortedKeys(m.Aliases) {
		aliases = append(aliases, aliasView{a, number(itoa(m.Aliases[a])).text()})
	}
	if aliases != nil {
		v["aliases"] = aliases
	}
	if latest := newestOfStages(versions, nil); len(latest) > 0 {
		views := make([]any, len(latest))
		for i, x := range latest {
			views[i] = versionView(m, x)
		}
		v["latest_versions"] = views
	}
	return v
}

// newestOfStages is the newest version of each stage, or of the stages asked for.
func newestOfStages(versions []*version, wanted []string) []*version {
	newest := map[string]*version{}
	for _, v := range versions {
		if len(wanted) > 0 && !slices.Contains(wanted, v.Stage) {
			continue
		}
		newest[v.Stage] = v // they are in the order of their numbers
	}
	var out []*version
	for _, v := range newest {
		out = append(out, v)
	}
	slices.SortFunc(out, byNumber)
	return out
}

func createRegistered(c *call) (any, error) {
	name, description, tags := c.need("name"), c.text("description"), c.pairs("tags")
	if err := c.done(); err != nil {
		return nil, err
	}
	if err := cmp.Or(checkModelName(name, "name"), checkLength("description", maxDescription, description)); err != nil {
		return nil, err
	}
	for _, t := range tags {
		if err := checkTag(t, maxRegistryTagValue); err != nil {
			return nil, err
		}
	}
	m := &registered{ID: newID(), Registered: locate.Registered{Name: name}, Description: description, User: c.who.User}
	for _, t := range tags {
		setTag(&m.Tags, t)
	}
	err := c.update(c.ctx, func(x *change) error {
		if old, err := findNamed[registered](x, kindRegistered, name); err != nil {
			return err
		} else if old != nil {
			return refuse(alreadyExists, "Registered Model (name=%s) already exists.", name)
		}
		m.Created, m.doc = x.now(), nil
		m.Updated = m.Created
		return x.save(m)
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"registered_model": registeredView(m, nil)}, nil
}

func getRegistered(c *call) (any, error) {
	name := c.need("name")
	if err := c.done(); err != nil {
		return nil, err
	}
	m, versions, err := c.registeredOf(name)
	if err != nil {
		return nil, err
	}
	return map[string]any{"registered_model": registeredView(m, versions)}, nil
}

// changeRegistered changes a registered model.
func (c *call) changeRegistered(name string, fn func(*change, *registered) error) (map[string]any, error) {
	if err := c.done(); err != nil {
		return nil, err
	}
	var id string
	err := c.update(c.ctx, func(x *change) error {
		m, err := x.findRegistered(name)
		if err != nil {
			return err
		}
		id = m.ID
		if err := c.mayRegistered(m); err != nil {
			return err
		}
		if err := fn(x, m); err != nil {
			return err
		}
		return x.save(m)
	})
	if err != nil {
		return nil, err
	}
	var v map[string]any
	c.view(func(x *index) {
		if m := x.registered[id]; m != nil {
			v = map[string]any{"registered_model": registeredView(m, x.versions[id])}
		}
	})
	return v, nil
}

func renameRegistered(c *call) (any, error) {
	name, to := c.need("name"), c.text("new_name")
	if err := checkModelName(to, "new_name"); err != nil {
		c.fail(err)
	}
	return c.changeRegistered(name, func(x *change, m *registered) error {
		if old, err := findNamed[registered](x, kindRegistered, to); err != nil {
			return err
		} else if old != nil && old.ID != m.ID {
			return refuse(alreadyExists, "Registered Model (name=%s) already exists.", to)
		}
		if err := c.mayEnd("Model "+m.Name, m.User); err != nil {
			return err
		}
		was := *m
		m.Name, m.Updated = to, x.now()
		err := x.eachVersion(m, func(v *version) error {
			if err := c.mayEndVersion(&was, v); err != nil {
				return err
			}
			if v.Asset && v.Container != "" {
				return invalid("Version %d of model '%s' was not registered through MLflow, so the model cannot be renamed", v.Number, was.Name)
			}
			if err := x.unshare(&was, v); err != nil {
				return err
			}
			v.Asset, v.Updated = false, m.Updated
			return x.save(v)
		})
		if err != nil {
			return err
		}
		return x.eachVersion(m, func(v *version) error { // the old name is free by now, if only its case changes
			if err := x.share(m, v); err != nil {
				return err
			}
			return x.save(v)
		})
	})
}

func updateRegistered(c *call) (any, error) {
	name, description := c.need("name"), c.text("description")
	if err := checkLength("description", maxDescription, description); err != nil {
		c.fail(err)
	}
	return c.changeRegistered(name, func(x *change, m *registered) error {
		m.Description, m.Updated = description, x.now()
		return nil
	})
}

func deleteRegistered(c *call) (any, error) {
	name := c.need("name")
	if err := c.done(); err != nil {
		return nil, err
	}
	return empty, c.update(c.ctx, func(x *change) error {
		m, err := x.findRegistered(name)
		if err != nil {
			return err
		}
		if err := c.mayEnd("Model "+m.Name, m.User); err != nil {
			return err
		}
		if err := x.eachVersion(m, func(v *version) error {
			if err := c.mayEndVersion(m, v); err != nil {
				return err
			}
			if err := x.unshare(m, v); err != nil {
				return err
			}
			return x.remove(v)
		}); err != nil {
			return err
		}
		return x.remove(m)
	})
}

func setRegisteredTag(c *call) (any, error) {
	name, t := c.need("name"), pair{c.need("key"), c.text("value")}
	if err := checkTag(t, maxRegistryTagValue); err != nil {
		c.fail(err)
	}
	_, err := c.changeRegistered(name, func(x *change, m *registered) error {
		setTag(&m.Tags, t)
		return nil
	})
	return empty, err
}

func deleteRegisteredTag(c *call) (any, error) {
	name, key := c.need("name"), c.need("key")
	_, err := c.changeRegistered(name, func(x *change, m *registered) error {
		delete(m.Tags, key)
		return nil
	})
	return empty, err
}

func checkAlias(alias string) error {
	if alias == "" {
		return invalid("Registered model alias name cannot be empty.")
	}
	for _, r := range alias {
		if r != '_' && r != '-' && !wordRune(r) {
			return invalid("Invalid alias name: '%s'. Names may only contain alphanumerics, underscores (_), and dashes (-).", alias)
		}
	}
	return checkLength("Registered model alias name", maxAlias, alias)
}

func checkReserved(alias string) error {
	if strings.EqualFold(alias, "latest") {
		return invalid("'latest' alias name (case insensitive) is reserved.")
	}
	if digits := strings.TrimLeft(alias[1:], "0123456789"); (alias[0] == 'v' || alias[0] == 'V') && len(alias) > 1 && digits == "" {
		return invalid("Version alias name '%s' is reserved.", alias)
	}
	return nil
}

func setAlias(c *call) (any, error) {
	name, alias := c.need("name"), c.need("alias")
	n := c.versionNumber()
	if err := cmp.Or(checkModelName(name, "name"), checkAlias(alias)); err != nil {
		c.fail(err)
	} else if err := checkReserved(alias); err != nil {
		c.fail(err)
	}
	_, err := c.changeRegistered(name, func(x *change, m *registered) error {
		if _, err := x.findVersion(m, n); err != nil {
			return err
		}
		if m.Aliases == nil {
			m.Aliases = map[string]int{}
		}
		_, x.state = m.Aliases[alias]
		m.Aliases[alias] = n
		return nil
	})
	return empty, err
}

func deleteAlias(c *call) (any, error) {
	name, alias := c.need("name"), c.need("alias")
	if err := checkAlias(alias); err != nil {
		c.fail(err)
	}
	_, err := c.changeRegistered(name, func(x *change, m *registered) error {
		delete(m.Aliases, alias)
		return nil
	})
	return empty, err
}

func getAlias(c *call) (any, error) {
	name, alias := c.need("name"), c.need("alias")
	if err := cmp.Or(c.done(), checkModelName(name, "name"), checkAlias(alias)); err != nil {
		return nil, err
	}
	m, versions, err := c.registeredOf(name)
	if err != nil {
		return nil, err
	}
	if strings.EqualFold(alias, "latest") {
		if len(versions) == 0 {
			return nil, missing("Latest version not found for model %s.", name)
		}
		return map[string]any{"model_version": versionView(m, versions[len(versions)-1])}, nil
	}
	n, ok := m.Aliases[alias]
	i, found := slices.BinarySearchFunc(versions, &version{Number: n}, byNumber)
	if !ok || !found {
		return nil, invalid("Registered model alias %s not found.", alias)
	}
	return map[string]any{"model_version": versionView(m, versions[i])}, nil
}
