package track

import (
	"cmp"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth/internal/asset"
)

// checkSource refuses sources that lead to the server's own disk, or out of where they say they
// are.
func checkSource(source, with string) error {
	u, err := url.Parse(source)
	if err != nil || u.Scheme == "" || u.Scheme == "file" {
		return invalid("Invalid model version source: '%s'. To use a local path as a model version source, the %s request parameter has to "+
			"be specified and the local path has to be contained within the artifact directory of the run specified by the %s.", source, with, with)
	}
	bad := invalid("Invalid model version source: '%s'. If supplying a source as an http, https, local file path, ftp, objectstore, or "+
		"mlflow-artifacts uri, an absolute path must be provided without relative path references present. Please provide an absolute path.", source)
	text := source
	for range 10 {
		more, err := url.QueryUnescape(text)
		if err != nil || more == text {
			break
		}
		text = more
	}
	if strings.ContainsRune(text, 0) || slices.Contains(strings.Split(text, "/"), "..") {
		return bad
	}
	p := text
	if _, rest, ok := strings.Cut(text, ":"); ok {
		p = rest
	}
	if after, ok := strings.CutPrefix(p, "//"); ok {
		_, after, _ = strings.Cut(after, "/")
		p = "/" + after
	}
	p, _, _ = strings.Cut(p, "?")
	p, _, _ = strings.Cut(p, "#")
	for strings.Contains(p, "//") {
		p = strings.ReplaceAll(p, "//", "/")
	}
	if p = strings.TrimSuffix(p, "/"); p != "" && (!strings.HasPrefix(p, "/") || path.Clean(p) != p) {
		return bad
	}
	return nil
}

// checkVersion refuses what a new version has. The text of a prompt is in its tags, and its source
// names nothing.
func (c *call) checkVersion(m *registered, v *version) error {
	if m.Tags[tagPrompt] != "true" {
		with := "run_id"
		if v.ModelID != "" {
			with = "model_id"
		}
		if err := checkSource(v.Source, with); err != nil {
			return err
		}
	}
	if v.Source = c.home(v.Source); !fit(v.Source, c.s.Locator.Zone) {
		return unfit("model version source", v.Source)
	}
	return cmp.Or(checkLength("source", maxSource, v.Source), checkLength("run_link", maxSource, v.RunLink),
		checkLength("description", maxDescription, v.Description), checkLength("run_id", maxReference, v.RunID), checkLength("model_id", maxReference, v.ModelID))
}

// newVersion reads a version that is to be made.
func (c *call) newVersion() (name string, v *version, err error) {
	name, tags := c.need("name"), c.pairs("tags")
	v = &version{
		Source: c.need("source"), RunID: c.text("run_id"), RunLink: c.text("run_link"), Description: c.text("description"),
		ModelID: c.text("model_id"), Stage: versionStages[0], Status: "READY", User: c.who.User,
	}
	if err := cmp.Or(c.done(), checkModelName(name, "name")); err != nil {
		return "", nil, err
	}
	if v.Source, err = c.given(v.Source); err != nil {
		return "", nil, err
	}
	if _, _, ok := inRunOf(v.Source); !ok && strings.HasPrefix(v.Source, runsScheme) {
		return "", nil, invalid("Invalid model version source: '%s'. It must name a run and a path in it: runs:/RUN_ID/PATH.", v.Source)
	}
	for _, t := range tags {
		if err := checkTag(t, maxRegistryTagValue); err != nil {
			return "", nil, err
		}
		setTag(&v.Tags, t)
	}
	return name, v, c.writeRunOf(v.Source)
}

func createVersion(c *call) (any, error) {
	name, v, err := c.newVersion()
	if err != nil {
		return nil, err
	}
	var m *registered
	err = c.update(c.ctx, func(x *change) error {
		var err error
		if m, err = x.findRegistered(name); err != nil {
			return err
		}
		return c.addVersion(x, m, v, func(next int) (int, error) { return next, nil })
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"model_version": versionView(m, v)}, nil
}

// addVersion writes a version. number chooses its number, given the next that nobody has had.
func (c *call) addVersion(x *change, m *registered, v *version, number func(next int) (int, error)) error {
	if err := c.checkVersion(m, v); err != nil {
		return err
	}
	v.Created, v.doc = x.now(), nil
	logged, err := c.placeVersion(x, v)
	if err != nil {
		return err
	}
	if err := c.findFiles(x, v); err != nil {
		return err
	}
	if err := c.mayRegister(v); err != nil {
		return err
	}
	if err := c.checkAbove(v); err != nil {
		return err
	}
	next, err := asset.Next(x.tx, x.w.Key, kindModels, m.Name)
	if err != nil {
		return err
	}
	n, err := number(max(m.Last+1, next))
	if err != nil {
		return err
	}
	m.Last = max(m.Last, n)
	m.Updated, v.Updated, v.Model, v.Number, v.Asset = v.Created, v.Created, m.ID, n, false
	if logged != nil && c.mayLogged(logged) == nil { // a model that a job may only read stays as it is
		tagVersions(logged, m.Name, itoa(v.Number))
		if err := x.save(logged); err != nil {
			return err
		}
	}
	if err := x.share(m, v); err != nil {
		return err
	}
	if err := x.save(v); err != nil {
		return err
	}
	return x.save(m)
}

// placeVersion finds where the files of a new version are, and the logged model it is made of.
func (c *call) placeVersion(x *change, v *version) (*loggedModel, error) {
	v.URI, v.HeldIn, v.Held = v.Source, "", ""
	id := v.ModelID
	if rest, ok := strings.CutPrefix(v.Source, "models:/"); ok {
		rest = strings.TrimPrefix(rest, "/")
		if name, n, ok := strings.Cut(rest, "/"); ok {
			number, err := strconv.Atoi(n)
			other, err2 := x.findRegistered(name)
			if err = cmp.Or(err, err2); err != nil {
				return nil, invalid("Unable to fetch model from model URI source artifact location '%s'. Error: %v", v.Source, err)
			}
			from, err := x.findVersion(other, number)
			if err != nil {
				return nil, invalid("Unable to fetch model from model URI source artifact location '%s'. Error: %v", v.Source, err)
			}
			v.URI, v.HeldIn, v.Held = from.URI, from.HeldIn, from.Held
		} else {
			id = rest
		}
	}
	if id == "" {
		return nil, nil
	}
	logged, err := find[loggedModel](x, kindLogged, id, "")
	if err != nil {
		return nil, err
	}
	if logged == nil || logged.Deleted {
		return nil, missing("Unable to fetch model from model URI source artifact location '%s'. Error: Logged model with ID '%s' not found.", v.Source, id)
	}
	if v.RunID == "" {
		v.RunID = logged.Run
	}
	if strings.HasPrefix(v.Source, "models:/") {
		v.URI = logged.URI
	}
	return logged, c.mayReadLogged(logged)
}

// tagVersions notes in a logged model which versions were made of it.
func tagVersions(m *loggedModel, name, n string) {
	old, _ := parseJSON([]byte(m.Tags[tagModelVersions]))
	all, _ := old.(list)
	for _, x := range all {
		if o, ok := x.(object); ok && o["name"] == name && (o["version"] == number(n) || o["version"] == n) {
			return
		}
	}
	all = append(all, object{"name": name, "version": number(n)})
	setTag(&m.Tags, pair{tagModelVersions, pretty(all)})
}
