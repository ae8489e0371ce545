package arm

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// declared is a resource of a template.
type declared struct {
	Resource
	symbol  string // what a template with symbolic names calls it
	raw     map[string]any
	loop    map[string]int // iterations it is in
	copied  string         // the name of its copy
	wanted  bool           // its condition holds
	existed bool           // it is only referred to
	after   []any          // what dependsOn says, evaluated
	below   *declared      // the resource it stands in

	under, made bool
}

// members are those of a resource that say something about it and are not sent.
var members = []string{"type", "name", "apiVersion", "apiversion", "dependsOn", "condition", "copy", "comments", "resources", "existing", "metadata", "scope", "resourceGroup", "subscriptionId"}

// readResources evaluates what is known of resources before any is made.
func (t *Template) readResources(v any) error {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		for i, e := range v {
			if err := t.declare("resources["+strconv.Itoa(i)+"]", "", e, nil, 0); err != nil {
				return err
			}
		}
	case map[string]any: // of templates with symbolic names
		for _, name := range keys(v) {
			if err := t.declare("resources."+name, name, v[name], nil, 0); err != nil {
				return err
			}
		}
	default:
		return wrong("resources", "must be an array")
	}
	for _, d := range t.resources {
		if d.ID == "" {
			continue // it is not made, and has no name
		}
		for _, n := range d.names() {
			if n = plainName(n); !slices.Contains(t.index[n], d) {
				t.index[n] = append(t.index[n], d)
			}
		}
	}
	return nil
}

// declare notes a resource, or each of those that its copy makes, and what stands in it.
func (t *Template) declare(where, symbol string, v any, parent *declared, depth int) error {
	raw, ok := v.(map[string]any)
	if !ok {
		return wrong(where, "must be an object")
	}
	if depth > 5 {
		return wrong(where, "resources are nested more than 5 deep")
	}
	loop, ok := raw["copy"].(map[string]any)
	if !ok {
		return t.declareOne(where, symbol, raw, parent, "", depth)
	}
	name, count, err := t.loopOf(where+".copy", loop)
	if err != nil {
		return err
	}
	if parent != nil {
		return wrong(where+".copy", "a resource inside another cannot be copied; write it at the top level")
	}
	for i := range count {
		end := t.enter(name, i)
		err := t.declareOne(where, symbol, raw, parent, name, depth)
		end()
		if err != nil {
			return err
		}
	}
	return nil
}

// enter begins an iteration of a loop; the caller ends it.
func (t *Template) enter(name string, i int) func() {
	old, had := t.loop[name]
	outer, hadOuter := t.loop[""]
	t.loop[name], t.loop[""] = i, i
	return func() {
		delete(t.loop, name)
		delete(t.loop, "")
		if had {
			t.loop[name] = old
		}
		if hadOuter {
			t.loop[""] = outer
		}
	}
}

// loopOf reads the name and the count of a copy.
func (t *Template) loopOf(where string, m map[string]any) (string, int, error) {
	name, _ := m["name"].(string)
	if name == "" {
		return "", 0, wrong(where, "name is missing")
	}
	v, err := t.value(where+".count", m["count"])
	if err != nil {
		return "", 0, err
	}
	n, ok := number(v)
	if !ok || n < 0 || n > maxCopies {
		return "", 0, wrong(where+".count", "must be an integer from 0 to %d", maxCopies)
	}
	return name, int(n), nil
}

// copyInto evaluates the loops of an object, each of which makes one of its members an array.
func (t *Template) copyInto(where string, list []any, out map[string]any, depth int) error {
	for i, e := range list {
		here := where + "[" + strconv.Itoa(i) + "]"
		m, ok := e.(map[string]any)
		if !ok {
			return wrong(here, "must be an object with name, count and input")
		}
		name, count, err := t.loopOf(here, m)
		if err != nil {
			return err
		}
		all := make([]any, count)
		for n := range count {
			end := t.enter(name, n)
			v, err := t.valueAt(here+".input", m["input"], depth+1)
			if err == nil {
				err = t.spend(v)
			}
			end()
			if err != nil {
				return err
			}
			all[n] = v
		}
		out[name] = all
	}
	return nil
}

func (t *Template) declareOne(where, symbol string, raw map[string]any, parent *declared, copied string, depth int) error {
	if len(t.resources) >= maxResources {
		return wrong(where, "a template has at most %d resources", maxResources)
	}
	d := &declared{symbol: symbol, raw: raw, copied: copied, below: parent, wanted: true, loop: map[string]int{}}
	for k, v := range t.loop {
		d.loop[k] = v
	}
	d.Where = where
	d.existed, _ = raw["existing"].(bool)
	if parent != nil {
		d.wanted = parent.wanted
	}
	if c, ok := raw["condition"]; ok && d.wanted {
		v, err := t.value(where+".condition", c)
		if err != nil {
			return err
		}
		if d.wanted, ok = v.(bool); !ok {
			return wrong(where+".condition", "must be true or false, not %s", kindOf(v))
		}
	}
	d.wanted = d.wanted && !d.existed
	err := t.name(d)
	if err == nil {
		err = t.finish(d)
	}
	if err != nil && (d.wanted || d.existed) {
		return err
	}
	t.resources = append(t.resources, d)
	children, ok := d.raw["resources"].([]any)
	if d.raw["resources"] != nil && !ok {
		return wrong(where+".resources", "must be an array")
	}
	for i, c := range children {
		if err := t.declare(where+".resources["+strconv.Itoa(i)+"]", "", c, d, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// name evaluates what a resource is called. One whose condition is false may have no name.
func (t *Template) name(d *declared) (err error) {
	if d.Type, err = t.textOf(d.Where, d.raw, "type"); err != nil {
		return err
	}
	if d.Name, err = t.textOf(d.Where, d.raw, "name"); err != nil {
		return err
	}
	if d.APIVersion, _ = d.raw["apiVersion"].(string); d.APIVersion != "" {
		if d.APIVersion, err = t.textOf(d.Where, d.raw, "apiVersion"); err != nil {
			return err
		}
	}
	if d.below != nil {
		if !strings.Contains(d.Type, ".") {
			d.Type = d.below.Type + "/" + d.Type
		}
		if strings.Count(d.Name, "/") < strings.Count(d.Type, "/")-1 {
			d.Name = d.below.Name + "/" + d.Name
		}
	}
	return nil
}

// finish finds the id of a resource and what it comes after.
func (t *Template) finish(d *declared) error {
	where := d.Where
	for _, k := range []string{"scope", "resourceGroup", "subscriptionId"} {
		if d.raw[k] != nil && !d.existed {
			return wrong(where+"."+k, "resources of other scopes cannot be deployed here; deploy them in a template of their own")
		}
	}
	id, err := idOf(d.Type, strings.Split(d.Name, "/"))
	if err != nil {
		return wrong(where+".name", "%q does not fit the type %s, whose name has %d parts divided by /", d.Name, d.Type, strings.Count(d.Type, "/"))
	}
	d.ID = "/subscriptions/" + t.place.Subscription + "/resourceGroups/" + t.place.Group + id
	for _, other := range t.resources {
		if d.wanted && other.wanted && strings.EqualFold(other.ID, d.ID) {
			return wrong(where, "%s is also made by %s", d.Name, other.Where)
		}
	}
	after, err := t.value(where+".dependsOn", d.raw["dependsOn"])
	if err != nil {
		return err
	}
	if after != nil {
		list, ok := after.([]any)
		if !ok {
			return wrong(where+".dependsOn", "must be an array")
		}
		if d.after = list; len(list) > maxResources {
			return wrong(where+".dependsOn", "names more than %d resources", maxResources)
		}
	}
	return nil
}

func (t *Template) textOf(where string, raw map[string]any, key string) (string, error) {
	v, err := t.value(where+"."+key, raw[key])
	if err != nil {
		return "", err
	}
	s, ok := v.(string)
	if !ok || s == "" {
		return "", wrong(where+"."+key, "must be a string")
	}
	return s, nil
}

// order checks dependsOn: everything named is there, and nothing comes after itself.
func (t *Template) order() error {
	var sorted []*declared
	state := map[*declared]int{}
	var visit func(d *declared) error
	visit = func(d *declared) error {
		switch state[d] {
		case 1:
			return wrong(d.Where+".dependsOn", "the resource depends on itself by way of others")
		case 2:
			return nil
		}
		state[d] = 1
		list, err := t.before(d)
		if err != nil {
			return err
		}
		for _, b := range list {
			if err := visit(b); err != nil {
				return err
			}
		}
		state[d] = 2
		sorted = append(sorted, d)
		return nil
	}
	for _, d := range t.resources {
		if err := visit(d); err != nil {
			return err
		}
	}
	t.resources = sorted
	return nil
}

// before are the resources that come before one.
func (t *Template) before(d *declared) ([]*declared, error) {
	var out []*declared
	if d.below != nil {
		out = append(out, d.below)
	}
	for i, a := range d.after {
		where := d.Where + ".dependsOn[" + strconv.Itoa(i) + "]"
		name, ok := a.(string)
		if !ok {
			return nil, wrong(where, "must be a string")
		}
		found := t.index[plainName(name)]
		for _, o := range found {
			if o == d && d.copied == "" {
				return nil, wrong(where, "the resource depends on itself")
			}
			if o != d {
				out = append(out, o)
			}
		}
		if len(found) == 0 && !strings.HasPrefix(name, "/subscriptions/") {
			return nil, wrong(where, "no resource of this template is called %q", name)
		}
	}
	return out, nil
}

// names are what a resource is called in dependsOn and reference: its id, its name, its symbolic
// name, or that of its copy. A type stands before some names.
func (d *declared) names() []string {
	out := []string{d.ID, d.Name, d.Type + "/" + d.Name, d.ID[max(0, strings.LastIndex(d.ID, "/providers/")):]}
	for _, n := range []string{d.symbol, d.copied} {
		if n != "" {
			out = append(out, n)
		}
	}
	return out
}

// plainName is a name as the index of resources has it.
func plainName(name string) string { return strings.ToLower(strings.Trim(name, "/")) }

// Deploy makes the resources in order. What was made before an error stays.
// It stops when ctx ends.
func (t *Template) Deploy(ctx context.Context, m Maker) error {
	t.maker, t.ended = m, ctx.Err
	for _, d := range t.resources {
		if err := t.make(d); err != nil {
			return t.veiled(err)
		}
	}
	return nil
}

// make makes one resource, after those whose state it needs.
func (t *Template) make(d *declared) error {
	if d.made || !d.wanted {
		return nil
	}
	if d.under {
		return wrong(d.Where, "it refers to itself by way of others")
	}
	d.under = true
	defer func() { d.under = false }()
	body, err := t.body(d)
	if err != nil {
		return err
	}
	if err := t.gone(); err != nil {
		return err
	}
	r := d.Resource
	r.Body = body
	if err := t.maker.Make(r); err != nil {
		return at(d.Where+" ("+d.Type+" "+d.Name+")", err)
	}
	d.made = true
	return nil
}

// body is what is sent for a resource.
func (t *Template) body(d *declared) (map[string]any, error) {
	saved := t.loop
	t.loop = d.loop
	defer func() { t.loop = saved }()
	rest := map[string]any{}
	for k, v := range d.raw {
		if !slices.Contains(members, k) {
			rest[k] = v
		}
	}
	v, err := t.value(d.Where, rest)
	if err != nil {
		return nil, err
	}
	body, ok := v.(map[string]any)
	if !ok {
		return nil, wrong(d.Where, "must be an object")
	}
	return body, t.spend(v)
}

// reference is the properties of a resource, or all of it: of one that the template makes, which is
// made first, or of one that is there.
func reference(t *Template, a []any) (any, error) {
	name, err := str(a[0])
	if err != nil {
		return nil, err
	}
	if t.maker == nil {
		return nil, berth.Errorf(berth.Invalid, "reference: cannot be used here: names, conditions, counts and variables are needed before anything is made")
	}
	id, version := name, ""
	if found := t.index[plainName(name)]; len(found) > 0 {
		d := found[0]
		if !d.wanted && !d.existed {
			return nil, berth.Errorf(berth.Invalid, "reference: %s is not made, because its condition is false", d.Name)
		}
		if err := t.make(d); err != nil {
			return nil, err
		}
		id, version = d.ID, d.APIVersion
	}
	if len(a) > 1 {
		if version, err = str(a[1]); err != nil {
			return nil, err
		}
	}
	if !strings.HasPrefix(id, "/subscriptions/") {
		return nil, berth.Errorf(berth.Invalid, "reference: %q is neither a resource of this template nor an id", name)
	}
	if err := t.referable(id); err != nil {
		return nil, err
	}
	got, err := t.maker.Get(id, version)
	if err != nil {
		return nil, berth.Errorf(berth.CodeOf(err), "reference: %s: %w", id, err)
	}
	if len(a) > 2 {
		if full, _ := a[2].(string); !strings.EqualFold(full, "Full") {
			return nil, berth.Errorf(berth.Invalid, "reference: its third argument can only be 'Full'")
		}
		return got, nil
	}
	return got["properties"], nil
}

// referable says whether reference may ask for an id: only resources have one, not what else is
// served below them, such as logs.
func (t *Template) referable(id string) error {
	if t.asked++; t.asked > maxReferences {
		return berth.Errorf(berth.Limit, "reference: a deployment calls it at most %d times", maxReferences)
	}
	p := strings.Split(strings.Trim(id, "/"), "/")
	// subscriptions/S/resourceGroups/G/providers/PROVIDER, then types and names in turn
	if len(p) < 8 || len(p)%2 != 0 || !strings.EqualFold(p[2], "resourceGroups") || !strings.EqualFold(p[4], "providers") {
		return berth.Errorf(berth.Invalid, "reference: %q is not the id of a resource in a resource group", id)
	}
	typ := p[5]
	for i := 6; i < len(p); i += 2 {
		if n := p[i+1]; n == "" || n == "." || n == ".." {
			return berth.Errorf(berth.Invalid, "reference: %q is not the id of a resource in a resource group", id)
		}
		typ += "/" + p[i]
	}
	if err := t.maker.Known(typ); err != nil {
		return berth.Errorf(berth.CodeOf(err), "reference: %s: %w", id, err)
	}
	return nil
}
