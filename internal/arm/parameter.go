package arm

import (
	"encoding/json"
	"maps"
	"reflect"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// types are those of parameters and outputs.
var types = map[string]bool{"string": true, "securestring": true, "int": true, "bool": true, "object": true, "secureobject": true, "array": true}

func isSecure(typ string) bool { return strings.HasPrefix(strings.ToLower(typ), "secure") }

// typeName is how Azure writes a type.
func typeName(typ string) string {
	switch l := strings.ToLower(typ); l {
	case "securestring":
		return "SecureString"
	case "secureobject":
		return "SecureObject"
	default:
		return strings.ToUpper(l[:1]) + l[1:]
	}
}

func checkType(typ string, v any) error {
	if v == nil {
		return nil
	}
	ok := false
	switch strings.TrimPrefix(strings.ToLower(typ), "secure") {
	case "string":
		_, ok = v.(string)
	case "int":
		_, ok = number(v)
	case "bool":
		_, ok = v.(bool)
	case "object":
		_, ok = v.(map[string]any)
	case "array":
		_, ok = v.([]any)
	}
	if !ok {
		return berth.Errorf(berth.Invalid, "must be of type %s, but is %s", strings.ToLower(typ), kindOf(v))
	}
	return nil
}

// kindOf names the type of a value without showing the value, which may be a secret.
func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "a bool"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	}
	if _, ok := number(v); ok {
		return "an int"
	}
	return "a number"
}

// readParameters checks the parameters that were given against those the template has.
func (t *Template) readParameters(template, given map[string]any) error {
	all, err := objectAt(template, "parameters")
	if err != nil {
		return err
	}
	if len(all) > maxParameters {
		return wrong("parameters", "there are %d; a template has at most %d", len(all), maxParameters)
	}
	for _, name := range keys(given) {
		if lookUp(all, name) == "" {
			return wrong("parameters."+name, "the template has no such parameter; it has %s", strings.Join(keys(all), ", "))
		}
	}
	type open struct {
		name string
		spec map[string]any
	}
	var defaults []open
	for _, name := range keys(all) {
		where := "parameters." + name
		spec, ok := all[name].(map[string]any)
		if !ok {
			return wrong(where, "must be an object with a type")
		}
		typ, _ := spec["type"].(string)
		if !types[strings.ToLower(typ)] {
			return wrong(where, "type must be string, int, bool, object, array, securestring or secureobject")
		}
		p := parameter{Type: typ, secure: isSecure(typ)}
		_, p.HasValue = spec["defaultValue"]
		var value any
		key := lookUp(given, name)
		if key != "" {
			if value, err = givenValue(where, given[key]); err != nil {
				return err
			}
		}
		switch {
		case key != "" && (value != nil || !p.HasValue): // null is the default, where there is one
			p.HasValue, t.values[name] = true, value
			if err := constrain(where, spec, value); err != nil {
				return err
			}
		case p.HasValue:
			defaults = append(defaults, open{name, spec})
		}
		t.parameters[name] = p
		if !p.HasValue {
			return wrong(where, "has no value and no default; give it one")
		}
	}
	for _, d := range defaults { // which may use other parameters
		where := "parameters." + d.name
		if err := t.scan(where+".defaultValue", d.spec["defaultValue"], 0); err != nil {
			return err
		}
		p := t.parameters[d.name]
		p.Default = d.spec["defaultValue"]
		t.parameters[d.name] = p
	}
	for _, d := range defaults {
		v, err := t.parameter(d.name)
		if err == nil {
			err = constrain("parameters."+d.name, d.spec, v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// givenValue is the value in a file of parameters.
func givenValue(where string, v any) (any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, wrong(where, `must be an object with a value: {"value": …}`)
	}
	if m["reference"] != nil {
		return nil, wrong(where, "values from a key vault cannot be had here; give the value itself")
	}
	value, ok := m["value"]
	if !ok {
		return nil, wrong(where, "value is missing")
	}
	return value, nil
}

// constrain checks a value against what its parameter allows. The value is not shown.
func constrain(where string, spec map[string]any, v any) error {
	typ, _ := spec["type"].(string)
	if err := checkType(typ, v); err != nil {
		return at(where, err)
	}
	if allowed, ok := spec["allowedValues"].([]any); ok && v != nil {
		found := false
		for _, a := range allowed {
			found = found || equal(a, v)
		}
		if !found {
			b, err := json.Marshal(allowed)
			if err != nil || isSecure(typ) {
				b = []byte("its allowedValues")
			}
			return wrong(where, "must be one of %s", b)
		}
	}
	var size int64
	what := "its value"
	switch x := v.(type) {
	case string:
		size, what = int64(len([]rune(x))), "its length"
	case []any:
		size, what = int64(len(x)), "its length"
	default:
		n, ok := number(v)
		if !ok {
			return nil
		}
		size = n
	}
	low, high := "minValue", "maxValue"
	if what == "its length" {
		low, high = "minLength", "maxLength"
	}
	if n, ok := number(spec[low]); ok && size < n {
		return wrong(where, "%s must be at least %d", what, n)
	}
	if n, ok := number(spec[high]); ok && size > n {
		return wrong(where, "%s must be at most %d", what, n)
	}
	return nil
}

// parameter is the value of a parameter.
func (t *Template) parameter(name string) (any, error) {
	key := lookUp(t.parameters, name)
	if key == "" {
		return nil, berth.Errorf(berth.Invalid, "there is no parameter %q", name)
	}
	if v, ok := t.values[key]; ok {
		return v, nil
	}
	mark := "parameter " + key
	if t.under[mark] {
		return nil, berth.Errorf(berth.Invalid, "the default of parameter %s refers to itself", key)
	}
	t.under[mark] = true
	defer delete(t.under, mark)
	v, err := t.value("parameters."+key+".defaultValue", t.parameters[key].Default)
	if err == nil {
		t.values[key] = v
	}
	return v, err
}

// loopVariable is a variable that a copy makes.
type loopVariable struct{ item any }

// readVariables notes the variables; those that a copy makes are each one of them.
func (t *Template) readVariables(template map[string]any) error {
	all, err := objectAt(template, "variables")
	if err != nil {
		return err
	}
	t.variables = maps.Clone(all)
	if list, ok := all["copy"].([]any); ok {
		delete(t.variables, "copy")
		for i, item := range list {
			m, _ := item.(map[string]any)
			name, _ := m["name"].(string)
			if name == "" {
				return wrong("variables.copy["+strconv.Itoa(i)+"]", "must be an object with name, count and input")
			}
			t.variables[name] = loopVariable{item}
		}
	}
	if len(t.variables) > maxVariables {
		return wrong("variables", "there are %d; a template has at most %d", len(t.variables), maxVariables)
	}
	return nil
}

// variable is the value of a variable.
func (t *Template) variable(name string) (any, error) {
	key := lookUp(t.variables, name)
	if key == "" {
		return nil, berth.Errorf(berth.Invalid, "there is no variable %q", name)
	}
	if v, ok := t.done[key]; ok {
		return v, nil
	}
	if t.under[key] {
		return nil, berth.Errorf(berth.Invalid, "variable %s refers to itself", key)
	}
	t.under[key] = true
	defer delete(t.under, key)
	v := t.variables[key]
	var err error
	if l, ok := v.(loopVariable); ok {
		out := map[string]any{}
		err = t.copyInto("variables.copy", []any{l.item}, out, 0)
		v = out[key]
	} else {
		v, err = t.value("variables."+key, v)
	}
	if err == nil {
		t.done[key] = v
	}
	return v, err
}

// lookUp is the key of a map that is the same as name but for its case, empty when there is none.
func lookUp[V any](m map[string]V, name string) string {
	if _, ok := m[name]; ok {
		return name
	}
	for k := range m {
		if strings.EqualFold(k, name) {
			return k
		}
	}
	return ""
}

// equal compares two values as JSON does.
func equal(a, b any) bool {
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	if x, ok := a.([]any); ok {
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equal(x[i], y[i]) {
				return false
			}
		}
		return true
	}
	if x, ok := a.(map[string]any); ok {
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k := range x {
			if v, ok := y[k]; !ok || !equal(x[k], v) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}

// Parameters are the parameters as they may be shown: secure ones without their value.
func (t *Template) Parameters() (map[string]any, error) {
	out := map[string]any{}
	for name, p := range t.parameters {
		shown := map[string]any{"type": typeName(p.Type)}
		if !p.secure {
			v, err := t.parameter(name)
			if err != nil {
				return nil, err
			}
			shown["value"] = v
		}
		out[name] = shown
	}
	return out, nil
}
