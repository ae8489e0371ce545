// Package arm reads Azure Resource Manager templates: parameters, variables, expressions, copies,
// conditions and the order in which resources are made. It makes nothing itself: [Template.Deploy]
// hands each resource, evaluated, to its caller, and asks it what resources are like.
//
// What it does not know is an error with the place in the template.
package arm

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berthml/berth"
)

// Limits of a template, most of them Azure's.
const (
	maxResources  = 800
	maxParameters = 256
	maxVariables  = 512
	maxOutputs    = 64
	maxExpression = 24576    // bytes
	maxNesting    = 64       // of calls in an expression, and of objects in a template
	maxValue      = 1 << 20  // bytes of one value
	maxWork       = 16 << 20 // bytes of all results together
	maxRead       = 64 << 20 // bytes of all expressions and arguments together, each time they are read
	maxCopies     = 800
	maxReferences = 1000 // calls of reference in a deployment
)

// Place is where a template is deployed.
type Place struct {
	Subscription, Group, Location, Tenant, Deployment string
}

// Resource is one resource of a template, as it is to be made.
type Resource struct {
	Type, Name, APIVersion string
	ID                     string
	Where                  string // in the template, for errors
	// Body is what is sent, without what the address says.
	Body map[string]any
}

// Maker makes the resources of a template.
type Maker interface {
	// Known says whether resources of a type can be referred to; the error says why not.
	Known(typ string) error
	// Make makes a resource, or brings one that is there to what it should be.
	Make(r Resource) error
	// Get is a resource that is there, whole.
	Get(id, apiVersion string) (map[string]any, error)
}

// Template is a template with its parameters, ready to be deployed.
type Template struct {
	place      Place
	parameters map[string]parameter
	values     map[string]any
	variables  map[string]any
	resources  []*declared
	index      map[string][]*declared // by what they are called
	outputs    map[string]output

	done  map[string]any // variables that were evaluated
	under map[string]bool
	work  int
	bytes int            // of expressions and arguments that were read
	ended func() error   // says whether nobody waits for the result any more
	asked int            // calls of reference
	maker Maker          // nil until it is deployed
	loop  map[string]int // the iteration of each loop under way

	functions map[string]function
}

type parameter struct {
	Type     string
	Default  any
	HasValue bool // or a default
	secure   bool
}

type output struct {
	typ       string
	value     any
	condition any
}

func wrong(where, format string, args ...any) error {
	return &berth.Error{Code: berth.Invalid, Wire: "InvalidTemplate", Msg: where + ": " + fmt.Sprintf(format, args...)}
}

// at puts a place before an error that has none.
func at(where string, err error) error {
	if err == nil {
		return nil
	}
	return &berth.Error{Code: berth.CodeOf(err), Wire: "InvalidTemplate", Msg: where + ": " + err.Error(), Err: err}
}

// Parse reads a template and the parameters it is given. Everything that can be checked without
// making anything is: names of functions, parameters and variables, the types and the order of
// resources. It stops when ctx ends.
func Parse(ctx context.Context, place Place, template, given map[string]any, known func(typ string) error) (*Template, error) {
	t := &Template{
		place: place, parameters: map[string]parameter{}, values: map[string]any{}, index: map[string][]*declared{},
		outputs: map[string]output{}, done: map[string]any{}, under: map[string]bool{}, loop: map[string]int{},
		functions: builtins(), ended: ctx.Err,
	}
	if err := t.read(template, given, known); err != nil {
		return nil, t.veiled(err)
	}
	return t, nil
}

func (t *Template) read(template, given map[string]any, known func(typ string) error) error {
	if err := t.top(template); err != nil {
		return err
	}
	for _, read := range []func(map[string]any) error{
		func(m map[string]any) error { return t.readParameters(m, given) }, t.readVariables, t.readOutputs,
	} {
		if err := read(template); err != nil {
			return err
		}
	}
	// Names are checked everywhere before anything is evaluated.
	for _, part := range []string{"variables", "resources", "outputs"} {
		if err := t.scan(part, template[part], 0); err != nil {
			return err
		}
	}
	if err := t.readResources(template["resources"]); err != nil {
		return err
	}
	for _, r := range t.resources {
		if err := known(r.Type); err != nil && r.wanted {
			return at(r.Where, err)
		}
	}
	return t.order()
}

// tops are the members of a template.
var tops = map[string]bool{
	"$schema": true, "contentversion": true, "apiprofile": true, "parameters": true, "variables": true, "resources": true, "outputs": true,
	"metadata": true, "languageversion": true, "functions": true, "definitions": true,
}

func (t *Template) top(template map[string]any) error {
	if template == nil {
		return berth.Errorf(berth.Invalid, "properties.template is missing; send the template itself")
	}
	for _, k := range keys(template) {
		if !tops[strings.ToLower(k)] {
			return wrong(k, "a template has no such member")
		}
	}
	for _, k := range []string{"functions", "definitions"} {
		if !isEmpty(template[k]) {
			return wrong(k, "%s of a template's own are not supported here; write them out where they are used", k)
		}
	}
	return nil
}

func (t *Template) readOutputs(template map[string]any) error {
	all, err := objectAt(template, "outputs")
	if err != nil {
		return err
	}
	if len(all) > maxOutputs {
		return wrong("outputs", "there are %d; a template has at most %d", len(all), maxOutputs)
	}
	for _, name := range keys(all) {
		where := "outputs." + name
		m, ok := all[name].(map[string]any)
		if !ok {
			return wrong(where, "must be an object with type and value")
		}
		typ, _ := m["type"].(string)
		if !types[strings.ToLower(typ)] {
			return wrong(where, "type must be string, int, bool, object, array, securestring or secureobject")
		}
		if m["copy"] != nil {
			return wrong(where, "copy in outputs is not supported here")
		}
		value, there := m["value"]
		if !there {
			return wrong(where, "value is missing")
		}
		t.outputs[name] = output{typ: typ, value: value, condition: m["condition"]}
	}
	return nil
}

// Outputs evaluates the outputs, after the resources were made. Secure ones have no value.
func (t *Template) Outputs(ctx context.Context) (map[string]any, error) {
	t.ended = ctx.Err
	out, err := t.evaluateOutputs()
	return out, t.veiled(err)
}

func (t *Template) evaluateOutputs() (map[string]any, error) {
	out := map[string]any{}
	for _, name := range keys(t.outputs) {
		o, where := t.outputs[name], "outputs."+name
		if o.condition != nil {
			v, err := t.value(where+".condition", o.condition)
			if err != nil {
				return nil, err
			}
			if keep, ok := v.(bool); !ok {
				return nil, wrong(where+".condition", "must be true or false")
			} else if !keep {
				continue
			}
		}
		v, err := t.value(where+".value", o.value)
		if err != nil {
			return nil, err
		}
		if err := checkType(o.typ, v); err != nil {
			return nil, at(where+".value", err)
		}
		shown := map[string]any{"type": typeName(o.typ)}
		if !isSecure(o.typ) {
			shown["value"] = v
		}
		out[name] = shown
	}
	return out, nil
}

// Resources are the resources that will be made, in order, as far as they are known before any is:
// their bodies are empty.
func (t *Template) Resources() []Resource {
	var out []Resource
	for _, r := range t.resources {
		if r.wanted {
			out = append(out, r.Resource)
		}
	}
	return out
}

func objectAt(m map[string]any, key string) (map[string]any, error) {
	v, ok := m[key]
	if !ok || v == nil {
		return map[string]any{}, nil
	}
	o, ok := v.(map[string]any)
	if !ok {
		return nil, wrong(key, "must be an object")
	}
	return o, nil
}

func keys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// number is an integer of JSON.
func number(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case float64:
		return int64(v), v == float64(int64(v))
	case json.Number:
		n, err := v.Int64()
		return n, err == nil
	}
	return 0, false
}
