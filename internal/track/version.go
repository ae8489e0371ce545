package track

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/berthml/berth/internal/store"
)

// The stages of a version.
var versionStages = []string{"None", "Staging", "Production", "Archived"}

func itoa(n int) string { return strconv.Itoa(n) }

func (n number) text() string { return string(n) }

func wordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }

func noVersion(name, number string) error {
	return missing("Model Version (name=%s, version=%s) not found", name, number)
}

// versionNumber reads the version a call is about.
func (p *params) versionNumber() int {
	v, ok := p.get("version")
	if !ok || v == "" {
		p.fail(required("version"))
		return 0
	}
	s, ok := v.(string)
	if !ok {
		p.fail(wrongType("version", v))
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		p.fail(invalid("Parameter 'version' must be an integer, got '%s'.", s))
	}
	return n
}

// findVersion reads a version in a change.
func (c *change) findVersion(m *registered, n int) (*version, error) {
	v, err := find[version](c, kindVersions, m.ID, itoa(n))
	if err == nil && v == nil {
		err = noVersion(m.Name, itoa(n))
	}
	return v, err
}

// eachVersion calls fn for every version of a model.
func (c *change) eachVersion(m *registered, fn func(*version) error) error {
	docs, err := c.tx.All(store.Query{Workspace: c.w.Key, Kind: kindVersions, Name: m.ID, Asc: true})
	if err != nil {
		return err
	}
	for _, d := range docs {
		v, err := decode[version](d)
		if err != nil {
			return err
		}
		if err := fn(v); err != nil {
			return err
		}
	}
	return nil
}

// versionView is a version as answers have it.
func versionView(m *registered, v *version) map[string]any {
	out := map[string]any{
		"name": m.Name, "version": itoa(v.Number), "creation_timestamp": v.Created, "last_updated_timestamp": v.Updated,
		"current_stage": v.Stage, "description": v.Description, "source": v.Source, "run_id": v.RunID, "status": v.Status, "run_link": v.RunLink,
	}
	if v.User != "" {
		out["user_id"] = v.User
	}
	if v.ModelID != "" {
		out["model_id"] = v.ModelID
	}
	if len(v.Tags) > 0 {
		out["tags"] = pairsOf(v.Tags)
	}
	var aliases []string
	for _, a := range sortedKeys(m.Aliases) {
		if m.Aliases[a] == v.Number {
			aliases = append(aliases, a)
		}
	}
	if aliases != nil {
		out["aliases"] = aliases
	}
	return out
}

// versionOf is a version as it is now.
func (c *call) versionOf(name string, n int) (*registered, *version, error) {
	m, versions, err := c.registeredOf(name)
	if err != nil {
		return nil, nil, noVersion(name, itoa(n))
	}
	i, ok := slices.BinarySearchFunc(versions, &version{Number: n}, byNumber)
	if !ok {
		return nil, nil, noVersion(name, itoa(n))
	}
	return m, versions[i], nil
}

func getVersion(c *call) (any, error) {
	name, n := c.need("name"), c.versionNumber()
	if err := cmp.Or(c.done(), checkModelName(name, "name")); err != nil {
		return nil, err
	}
	m, v, err := c.versionOf(name, n)
	if err != nil {
		return nil, err
	}
	return map[string]any{"model_version": versionView(m, v)}, nil
}

func versionURI(c *call) (any, error) {
	name, n := c.need("name"), c.versionNumber()
	if err := c.done(); err != nil {
		return nil, err
	}
	_, v, err := c.versionOf(name, n)
	if err != nil {
		return nil, err
	}
	if !fit(v.URI, c.s.Locator.Zone) { // a model of the workspace may have any
		return nil, unfit("model version source", v.URI)
	}
	return map[string]any{"artifact_uri": c.shown(v.URI)}, nil
}

// changeVersion changes a version and, where touch is set, the time of its model.
func (c *call) changeVersion(name string, n int, touch bool, fn func(*change, *registered, *version) error) (any, error) {
	if err := c.done(); err != nil {
		return nil, err
	}
	var m *registered
	var v *version
	err := c.update(c.ctx, func(x *change) error {
		var err error
		if m, err = findNamed[registered](x, kindRegistered, name); err != nil {
			return err
		}
		if m == nil {
			return noVersion(name, itoa(n))
		}
		if v, err = x.findVersion(m, n); err != nil {
			return err
		}
		if err := c.mayVersion(m, v); err != nil {
			return err
		}
		if err := fn(x, m, v); err != nil {
			return err
		}
		if err := x.share(m, v); err != nil {
			return err
		}
		if touch {
			v.Updated = x.now()
			m.Updated = v.Updated
			if err := x.save(m); err != nil {
				return err
			}
		}
		return x.save(v)
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"model_version": versionView(m, v)}, nil
}

func updateVersion(c *call) (any, error) {
	name, n, description := c.need("name"), c.versionNumber(), c.text("description")
	if err := checkLength("description", maxDescription, description); err != nil {
		c.fail(err)
	}
	return c.changeVersion(name, n, false, func(x *change, m *registered, v *version) error {
		v.Description, v.Updated = description, x.now()
		return nil
	})
}

func deleteVersion(c *call) (any, error) {
	name, n := c.need("name"), c.versionNumber()
	if err := c.done(); err != nil {
		return nil, err
	}
	return empty, c.update(c.ctx, func(x *change) error {
		m, err := findNamed[registered](x, kindRegistered, name)
		if err != nil {
			return err
		}
		if m == nil {
			return noVersion(name, itoa(n))
		}
		v, err := x.findVersion(m, n)
		if err != nil {
			return err
		}
		if err := c.mayEndVersion(m, v); err != nil {
			return err
		}
		x.state = true
		if err := x.unshare(m, v); err != nil {
			return err
		}
		if err := x.dropVersion(m, v); err != nil {
			return err
		}
		return x.save(m)
	})
}

// dropVersion removes a version, and the aliases that point to it; the caller saves the model.
func (c *change) dropVersion(m *registered, v *version) error {
	for a, to := range m.Aliases {
		if to == v.Number {
			delete(m.Aliases, a)
		}
	}
	m.Updated = c.now()
	return c.remove(v)
}

func setVersionTag(c *call) (any, error) {
	name, n, t := c.need("name"), c.versionNumber(), pair{c.need("key"), c.text("value")}
	if err := checkTag(t, maxRegistryTagValue); err != nil {
		c.fail(err)
	}
	_, err := c.changeVersion(name, n, false, func(x *change, m *registered, v *version) error {
		setTag(&v.Tags, t)
		return nil
	})
	return empty, err
}

func deleteVersionTag(c *call) (any, error) {
	name, n, key := c.need("name"), c.versionNumber(), c.need("key")
	_, err := c.changeVersion(name, n, false, func(x *change, m *registered, v *version) error {
		delete(v.Tags, key)
		return nil
	})
	return empty, err
}

// canonicalStage is a stage as it is written in answers.
func canonicalStage(stage string) (string, error) {
	for _, s := range versionStages {
		if strings.EqualFold(s, stage) {
			return s, nil
		}
	}
	return "", invalid("Invalid Model Version stage: %s. Value must be one of %s.", stage, strings.Join(versionStages, ", "))
}

func transitionStage(c *call) (any, error) {
	name, n, asked, archive := c.need("name"), c.versionNumber(), c.need("stage"), c.bool("archive_existing_versions")
	stage, err := canonicalStage(asked)
	if err != nil {
		c.fail(err)
	}
	if archive && stage != "Staging" && stage != "Production" {
		c.fail(invalid("Model version transition cannot archive existing model versions because '%s' is not an Active stage. Valid stages "+
			"are ['Staging', 'Production']", asked))
	}
	return c.changeVersion(name, n, true, func(x *change, m *registered, v *version) error {
		v.Stage = stage
		if !archive {
			return nil
		}
		return x.eachVersion(m, func(o *version) error {
			if o.Number == n || o.Stage != stage {
				return nil
			}
			o.Stage, o.Updated = "Archived", x.now()
			return x.save(o)
		})
	})
}

func latestVersions(c *call) (any, error) {
	name, asked := c.need("name"), c.texts("stages")
	if err := c.done(); err != nil {
		return nil, err
	}
	var wanted []string
	for _, s := range asked {
		stage, err := canonicalStage(s)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, stage)
	}
	m, versions, err := c.registeredOf(name)
	if err != nil {
		return nil, err
	}
	var views []any
	for _, v := range newestOfStages(versions, wanted) {
		views = append(views, versionView(m, v))
	}
	return paged("model_versions", views, ""), nil
}
