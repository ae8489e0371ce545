package spec_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/berthml/berth/internal/spec"
)

// FuzzLoad feeds the decoder and the tables: whatever comes in, the answer is documents or errors
// with a place inside the text, never a panic.
func FuzzLoad(f *testing.F) {
	files, _ := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, one := range a.Files {
			if strings.HasSuffix(one.Name, "in.yaml") {
				f.Add(one.Data, "")
			}
		}
	}
	f.Add([]byte("type: pipeline\njobs: {a: {type: command}}"), "job")
	f.Add([]byte("a: &a [*a]"), "")
	dir, err := os.MkdirTemp("", "spec")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { os.RemoveAll(dir) })
	here := filepath.Join(dir, "a", "b", "c", "d", "e", "f") // so that .. leads nowhere large
	if err := os.MkdirAll(here, 0o755); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte, kind string) {
		if len(data) > 1<<16 {
			return
		}
		known := false
		for _, k := range spec.Kinds() {
			known = known || k == kind
		}
		if !known {
			kind = ""
		}
		lines := 2 // an error at the end may lie on the line after
		for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
			lines += strings.Count(string(data), end)
		}
		r, err := spec.LoadBytes(data, spec.Options{Kind: kind, Dir: here, File: "f"})
		if err != nil {
			errs, ok := err.(spec.Errors)
			if !ok || len(errs) == 0 {
				t.Fatalf("error of type %T: %v", err, err)
			}
			for _, e := range errs {
				if e.Msg == "" || e.Line < 0 || e.File == "f" && e.Line > lines {
					t.Errorf("bad place or message: %#v", e)
				}
			}
			return
		}
		for _, res := range r.Resources {
			if !json.Valid(res.Body) || res.Type == "" {
				t.Errorf("bad resource %s: %s", res.Type, res.Body)
			}
		}
	})
}

// FuzzExpressions checks that every expression found is one, in its place.
func FuzzExpressions(f *testing.F) {
	for _, s := range []string{"", "${{inputs.a}}", "x ${{ outputs.b }} y", "$[[--x ${{inputs.x}}]]", "${{a b}}", "${{${{inputs.a}}}}", "${{", "}}${{}}", "$[[${{a}}", "${{\ta.b\n}}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		last := 0
		for _, e := range spec.Expressions(s) {
			if e.Start < last || e.End > len(s) || !strings.HasPrefix(s[e.Start:], "${{") || !strings.HasSuffix(s[:e.End], "}}") {
				t.Fatalf("%q: %+v", s, e)
			}
			inner := strings.TrimSpace(s[e.Start+3 : e.End-2])
			if inner != strings.Join(e.Path, ".") || strings.ContainsAny(inner, " \t\n") || inner == "" {
				t.Fatalf("%q: path %q of %q", s, strings.Join(e.Path, "."), inner)
			}
			last = e.End
		}
	})
}

// FuzzEntity shows arbitrary documents.
func FuzzEntity(f *testing.F) {
	f.Add("jobs", []byte(`{"id":"/subscriptions/s","properties":{"jobType":"Command","limits":{"timeout":"PT1H"},"inputs":{"a":{"jobInputType":"literal","value":"1"}}}}`))
	f.Add("computes", []byte(`{"properties":{"computeType":"AmlCompute","properties":{"scaleSettings":{"nodeIdleTimeBeforeScaleDown":"P1D"}}}}`))
	f.Add("components", []byte(`{"properties":{"componentSpec":{"name":"c"}}}`))
	f.Fuzz(func(t *testing.T, collection string, doc []byte) {
		dec := json.NewDecoder(bytes.NewReader(doc))
		dec.UseNumber()
		var m map[string]any
		if dec.Decode(&m) != nil {
			return
		}
		spec.Container(collection, m)
		got, err := spec.Entity(collection, m)
		if err != nil {
			return
		}
		if _, err := json.Marshal(got); err != nil {
			t.Fatal(err)
		}
	})
}
