package api

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
)

// jsonErrorText is the message of an error; where a value was of another type than its field, in
// words of the API and not of this program.
func jsonErrorText(err error) string {
	text := err.Error()
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return text
	}
	kind, number, _ := strings.Cut(wrong.Value, " ")
	given, ok := map[string]string{
		"string": "a string", "array": "a list", "object": "an object", "bool": "true or false", "number": strings.TrimSpace("the number " + number),
	}[kind]
	if !ok {
		given = wrong.Value
	}
	field := strings.TrimPrefix(wrong.Field, ".")
	if field == "" {
		field = "it"
	}
	return strings.Replace(text, wrong.Error(), field+" cannot be "+given+wanted(wrong.Type), 1)
}

// wanted is what a field takes.
func wanted(t reflect.Type) string {
	if t == nil {
		return ""
	}
	switch t.Kind() {
	case reflect.Bool:
		return "; give true or false"
	case reflect.String:
		return "; give a string"
	case reflect.Int, reflect.Int64, reflect.Int32:
		return "; give a whole number"
	case reflect.Float64, reflect.Float32:
		return "; give a number"
	case reflect.Slice:
		return "; give a list"
	case reflect.Struct, reflect.Map, reflect.Pointer:
		return "; give an object"
	}
	return ""
}
