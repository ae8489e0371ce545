package client

import (
	"reflect"
	"testing"
)

// TestJobsHaveNoUntypedNumbers: jobs are decoded without json.Number, so none of their fields may
// be of a type that JSON decides.
func TestJobsHaveNoUntypedNumbers(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var look func(path string, of reflect.Type)
	look = func(path string, of reflect.Type) {
		if seen[of] {
			return
		}
		seen[of] = true
		switch of.Kind() {
		case reflect.Interface:
			t.Errorf("%s is an interface; decode jobs with UseNumber", path)
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			look(path+"[]", of.Elem())
		case reflect.Struct:
			if of.PkgPath() == "time" {
				return
			}
			for i := range of.NumField() {
				look(path+"."+of.Field(i).Name, of.Field(i).Type)
			}
		}
	}
	look("Job", reflect.TypeFor[Job]())
}
