package spec_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/spec"
)

// Names that a user chose come out in the order the file has them in.
func TestNamesKeepTheirOrder(t *testing.T) {
	for _, c := range []struct {
		what, kind, yaml string
		order            []string // keys of one map each, separated by spaces
	}{
		{"component", "component", `
name: c
type: command
tags: {t2: a, t3: b, t1: c}
inputs:
  i2: {type: number}
  i3: {type: string, default: x}
  i1: {type: uri_folder}
outputs:
  o2: {type: uri_folder}
  o1: {type: uri_folder}
environment: azureml:e:1
command: echo
`, []string{"t2 t3 t1", "i2 i3 i1", "o2 o1"}},
		{"job", "job", `
command: echo
environment: azureml:e:1
environment_variables: {e2: a, e1: b}
inputs: {i2: 1, i3: 2, i1: {type: uri_file, path: azureml:d:1}}
outputs: {o2: , o1: {mode: upload}}
tags: {t2: a, t1: b}
properties: {p2: a, p1: b}
`, []string{"e2 e1", "i2 i3 i1", "o2 o1", "t2 t1", "p2 p1"}},
		{"pipeline", "job", `
type: pipeline
compute: azureml:local
inputs: {i2: 1, i1: 2}
jobs:
  s2:
    type: command
    component: azureml:c:1
    inputs: {j2: 1, j3: 2, j1: 3}
  s1:
    type: command
    component: azureml:c:1
    inputs: {j1: 1, j3: 3}
    outputs: {o2: {mode: upload}, o1: {mode: upload}}
`, []string{"i2 i1", "s2 s1", "j2 j3 j1", "o2 o1"}},
		{"compute", "compute", `
name: c
type: amlcompute
tags: {t2: a, t1: b}
`, []string{"t2 t1"}},
	} {
		r, err := spec.LoadBytes([]byte(c.yaml), spec.Options{Kind: c.kind})
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		filled, err := r.Main().Fill(map[string]string{"no placeholder": "of it"})
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range []string{string(r.Main().Body), string(filled)} {
			for _, names := range c.order {
				var at []int
				for _, name := range strings.Fields(names) {
					at = append(at, strings.Index(body, `"`+name+`":`))
				}
				if at[0] < 0 || !slices.IsSorted(at) {
					t.Errorf("%s: %s are at %v of\n%s", c.what, names, at, body)
				}
			}
		}
	}
}
