package api

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// shapeComponent writes into componentSpec what the service writes.
func shapeComponent(c *call, d *store.Doc, p map[string]any) {
	shapeAsset(c, d, p)
	orNull(p, "autoDeleteSetting")
	p["stage"] = stageOf(p)
	if d.Archived {
		p["stage"] = "Archived"
	}
	spec, ok := p["componentSpec"].(map[string]any)
	if !ok {
		return
	}
	delete(spec, "_source")
	setDefault(spec, "name", d.Name)
	setDefault(spec, "version", d.Version)
	typ := text(spec, "type")
	switch typ {
	case "command":
		setDefault(spec, "resources", map[string]any{"instance_count": "1"})
	case "parallel":
		delete(spec, "resources")
	case "pipeline":
		setDefault(spec, "is_deterministic", false)
	}
	for _, v := range asMap(spec["inputs"]) {
		if in, ok := v.(map[string]any); ok {
			shapeInput(typ, in)
		}
	}
	for _, v := range asMap(spec["outputs"]) {
		if out, ok := v.(map[string]any); ok {
			shapeOutput(typ, out)
		}
	}
	curatedInSpec(spec)
	if task, ok := spec["task"].(map[string]any); ok {
		curatedInSpec(task)
	}
	for k, v := range spec {
		if k != "jobs" { // which the service does not show at all
			spec[k] = inWords(v)
		}
	}
}

// shapeInput writes what the service writes into an input of a component of a type.
func shapeInput(typ string, in map[string]any) {
	switch typ {
	case "command", "pipeline", "spark", "data_transfer":
		setDefault(in, "optional", false)
	}
	if typ == "spark" {
		delete(in, "mode")
	}
	if def, ok := in["default"].(string); ok && typ == "pipeline" {
		in["default"] = strings.TrimPrefix(def, "azureml:")
	}
}

func shapeOutput(typ string, out map[string]any) {
	if typ == "spark" {
		delete(out, "mode")
	}
	if typ == "pipeline" && text(out, "type") == "boolean" {
		setDefault(out, "early_available", true)
	}
}

// inWords is a part of a specification as the service shows it: what is a number or a truth value
// there is a text here.
func inWords(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k, val := range x {
			x[k] = inWords(val)
		}
	case []any:
		for i, val := range x {
			x[i] = inWords(val)
		}
	}
	return wording(v)
}

// curatedInSpec gives a curated environment its registry address.
func curatedInSpec(m map[string]any) {
	ref, ok := strings.CutPrefix(text(m, "environment"), "azureml:")
	if !ok || !strings.HasPrefix(ref, "AzureML-") {
		return
	}
	name, version, ok := strings.Cut(ref, ":")
	if !ok {
		var label string
		if name, label, ok = strings.Cut(ref, "@"); ok && strings.EqualFold(label, "latest") {
			version = curatedVersion
		}
	}
	if version != "" {
		m["environment"] = "azureml://registries/azureml/environments/" + name + "/versions/" + version
	}
}

// sameComponent refuses to change what a component runs. Names and texts for people may change.
func sameComponent(c *call, tx *store.Tx, d *store.Doc, old, asked map[string]any) error {
	a, _ := old["componentSpec"].(map[string]any)
	b, _ := asked["componentSpec"].(map[string]any)
	if a == nil || b == nil {
		return nil
	}
	if strings.EqualFold(d.Name, "azureml_anonymous") {
		if err := c.runsSame(tx, d, a, b); err != nil || d.CreatedBy != c.who.User {
			return err
		}
		old["componentSpec"] = b // its version is the hash of what it runs; what it says to people may differ
		return nil
	}
	was := map[string]any{"environment": a["environment"]}
	curatedInSpec(was)
	curatedInSpec(b)
	for _, k := range []string{"command", "code", "environment", "type"} {
		if _, ok := was[k]; !ok {
			was[k] = a[k]
		}
		if v, ok := b[k]; ok && !reflect.DeepEqual(v, was[k]) {
			return berth.Errorf(berth.Invalid, "component %s:%s exists with another %s, and that is immutable: create a new version", d.Name, d.Version, k)
		}
	}
	for _, k := range []string{"inputs", "outputs"} {
		if v, ok := b[k]; ok && !reflect.DeepEqual(sockets(v), sockets(a[k])) {
			return berth.Errorf(berth.Invalid, "component %s:%s exists with another %s, and that is immutable: create a new version", d.Name, d.Version, k)
		}
	}
	for _, k := range []string{"description", "display_name", "tags"} {
		if v, ok := b[k]; ok {
			a[k] = v
		}
	}
	return nil
}

// saidOfComponent is what a component without a name says to people and to clients: nothing of it
// is run.
var saidOfComponent = []string{"$schema", "_source", "name", "version", "display_name", "description", "tags", "is_deterministic"}

// runsSame refuses a component without a name that runs something else than the one there is under
// the same hash: the hash is what a client says, and others may have been given the one there is.
// The same code may have been uploaded twice.
func (c *call) runsSame(tx *store.Tx, d *store.Doc, a, b map[string]any) error {
	for _, k := range slices.Sorted(maps.Keys(both(a, b))) {
		same, err := c.sameField(tx, k, a[k], b[k])
		if err != nil {
			return err
		}
		if !same && !slices.Contains(saidOfComponent, k) {
			return berth.Errorf(berth.Conflict, "component %s:%s of %s has the same hash and another %s; give the component a name", d.Name, d.Version, d.CreatedBy, k)
		}
	}
	return nil
}

// both has the members of a and of b.
func both(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

func (c *call) sameField(tx *store.Tx, k string, a, b any) (bool, error) {
	switch {
	case reflect.DeepEqual(a, b):
		return true, nil
	case k == "inputs" || k == "outputs":
		return reflect.DeepEqual(sockets(a), sockets(b)), nil
	case k != "code":
		return false, nil
	}
	from, _ := a.(string)
	was, err := c.contentOf(tx, from)
	if err != nil {
		return false, err
	}
	from, _ = b.(string)
	is, err := c.contentOf(tx, from)
	return was == is, err
}

// sockets are the inputs or outputs of a component as far as they say what may be plugged in, each
// in one word. The same is said in many ways: in numbers and in words, with and without what is so
// anyway.
func sockets(v any) map[string]string {
	out := map[string]string{}
	all, _ := v.(map[string]any)
	for name, v := range all {
		s, _ := v.(map[string]any)
		var b strings.Builder
		for _, k := range []string{"type", "optional", "default", "enum", "min", "max"} {
			word := fmt.Sprint(wording(s[k]))
			if list, ok := s[k].([]any); ok {
				words := make([]any, len(list))
				for i, v := range list {
					words[i] = wording(v)
				}
				word = fmt.Sprint(words)
			}
			if s[k] == nil || k == "optional" && strings.EqualFold(word, "false") {
				word = ""
			}
			if f, err := strconv.ParseFloat(word, 64); err == nil {
				word = strconv.FormatFloat(f, 'g', -1, 64)
			}
			if k == "type" || k == "optional" {
				word = strings.ToLower(word)
			}
			fmt.Fprintf(&b, "%s=%q ", k, strings.TrimPrefix(word, "azureml:"))
		}
		out[name] = b.String()
	}
	return out
}

// timestampVersion is how Azure numbers components.
func timestampVersion(c *call, _ string) string {
	t := c.now.UTC()
	return t.Format("2006-01-02-15-04-05-") + padLeft(strconv.Itoa(t.Nanosecond()/100), 7)
}

func padLeft(s string, n int) string { return strings.Repeat("0", max(0, n-len(s))) + s }
