package spec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/spec"
)

// envJob is a job whose environment variables show what the decoder makes of a YAML text.
func envJob(t *testing.T, vars string) map[string]any {
	t.Helper()
	text := "command: x\nenvironment: azureml:e:1\nenvironment_variables:\n" + vars
	r, err := spec.LoadBytes([]byte(text), spec.Options{Kind: "job"})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var body struct {
		Properties struct {
			Env map[string]any `json:"environmentVariables"`
		} `json:"properties"`
	}
	dec := json.NewDecoder(bytes.NewReader(r.Main().Body))
	dec.UseNumber()
	if err := dec.Decode(&body); err != nil {
		t.Fatal(err)
	}
	return body.Properties.Env
}

// TestDialect is YAML 1.1 as PyYAML reads it, where it differs from 1.2.
func TestDialect(t *testing.T) {
	n := func(s string) json.Number { return json.Number(s) }
	for text, want := range map[string]any{
		"yes": true, "No": false, "ON": true, "off": false, "y": "y", "n": "n", "TRUE": true, "tRue": "tRue",
		"010": n("8"), "0o10": "0o10", "0x1F": n("31"), "0b101": n("5"), "08": "08", "1_000": n("1000"), "+1": n("1"),
		"1e3": "1e3", "1.0e+3": n("1000.0"), "1.5e3": "1.5e3", ".5": n("0.5"), "1.": n("1.0"), "1.10": n("1.1"),
		"12:30": n("750"), "12:30:45": n("45045"), "190:20:30.15": n("685230.15"),
		"~": nil, "null": nil, "Null": nil, "nUll": "nUll",
		"'5'": "5", `"yes"`: "yes", "!!str 5": "5", "!!int '5'": n("5"), "!!float 3": n("3.0"), "! 5": "5",
		"12345678901234567890": n("12345678901234567890"), "1.0": n("1.0"), "-0.0": n("-0.0"), "1.0e-05": n("1e-05"),
		"=": "=", "<<": "<<", "plain text": "plain text", "-": nil,
		"2022-01-02": "2022-01-02", "2022-1-2 3:04:05": "2022-01-02T03:04:05Z", "2022-01-02T03:04:05.25+02:00": "2022-01-02T01:04:05.250000Z",
		"2022-01-02 03:04:05 -5": "2022-01-02T08:04:05Z", "2022-01-02t03:04:05.123456789": "2022-01-02T03:04:05.123456Z",
	} {
		if text == "-" {
			continue
		}
		got := envJob(t, "  v: "+text+"\n")["v"]
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestDecodeStructure(t *testing.T) {
	got := envJob(t, `  <<: [{a: merged, b: first}, {b: second, c: third}]
  c: own
  d: one
  d: two
  1: number
  true: yes
  anchor: &x shared
  alias: *x
`)
	want := map[string]any{"a": "merged", "b": "first", "c": "own", "d": "two", "1": "number", "true": true, "anchor": "shared", "alias": "shared"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEncodings(t *testing.T) {
	text := "command: héllo\nenvironment: azureml:e:1\n"
	var wide bytes.Buffer
	wide.Write([]byte{0xff, 0xfe})
	for _, u := range utf16.Encode([]rune(text)) {
		wide.Write([]byte{byte(u), byte(u >> 8)})
	}
	for name, data := range map[string][]byte{"bom": []byte("\xef\xbb\xbf" + text), "utf-16": wide.Bytes(), "crlf": []byte(strings.ReplaceAll(text, "\n", "\r\n"))} {
		r, err := spec.LoadBytes(data, spec.Options{Kind: "job"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !bytes.Contains(r.Main().Body, []byte("héllo")) {
			t.Errorf("%s: %s", name, r.Main().Body)
		}
	}
	_, err := spec.LoadBytes([]byte("command: x\nname: \xff\n"), spec.Options{File: "f.yml"})
	if err == nil || !strings.Contains(err.Error(), "f.yml:2:7: is not valid UTF-8") {
		t.Errorf("invalid UTF-8 gives %v", err)
	}
}

// TestHostile is about files that would eat time or memory: each is refused, soon.
func TestHostile(t *testing.T) {
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 12; i++ {
		bomb += strings.ReplaceAll(strings.ReplaceAll("aI: &aI [*P,*P,*P,*P,*P,*P,*P,*P,*P,*P]\n", "I", string(rune('a'+i))), "P", "a"+map[bool]string{true: "0", false: string(rune('a' + i - 1))}[i == 1])
	}
	for name, c := range map[string]struct{ text, want string }{
		"aliases": {bomb, "values"},
		"deep":    {"a: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "deep"},
		"maps":    {"a: " + strings.Repeat("{a: ", 500) + strings.Repeat("}", 500), "deep"},
		"itself":  {"a: &a [*a]", "contains itself"},
		"merge":   {"a: &a {<<: *a}", "contains itself"},
		"large":   {"a: " + strings.Repeat("x", spec.MaxFile+1), "larger"},
		"keys":    {strings.Repeat("? [a]\n: b\n", 3), "key must be a scalar"},
		"tag":     {"a: !!python/object x", "tag"},
		"custom":  {"a: !mine x", "tag"},
		"anchor":  {"a: *nobody", ""},
		"quote":   {"a: \"x", ""},
		"control": {"a: \x01", ""},
	} {
		_, err := spec.LoadBytes([]byte(c.text), spec.Options{File: "in.yaml"})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s gives %.200v, want %q", name, err, c.want)
		}
	}
}

func TestManyKeys(t *testing.T) {
	var b strings.Builder
	b.WriteString("command: x\nenvironment: azureml:e:1\nenvironment_variables:\n")
	for i := range 50_000 { // a walk that is quadratic in the keys would not end
		b.WriteString("  k" + strings.Repeat("z", i%3) + strings.TrimLeft(strings.Repeat("0", 6)+itoa(i), " ") + ": v\n")
	}
	if _, err := spec.LoadBytes([]byte(b.String()), spec.Options{Kind: "job"}); err != nil {
		t.Fatal(err)
	}
}

func itoa(i int) string { return string(append([]byte(nil), json.Number(jsonInt(i))...)) }

func jsonInt(i int) string { b, _ := json.Marshal(i); return string(b) }

// Files that refer to each other in a circle are refused.
func TestCircle(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{
		"p.yml": "type: pipeline\nsettings: {default_compute: serverless}\njobs:\n  a: {type: pipeline, component: ./c.yml}\n",
		"c.yml": "type: pipeline\nname: c\njobs:\n  a: {type: pipeline, component: ./c.yml}\n",
	})
	if _, err := spec.Load(filepath.Join(root, "p.yml"), spec.Options{Kind: "job"}); err == nil {
		t.Error("a component that holds itself is taken")
	}
}

func TestLoadFiles(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"empty.yml": "# nothing\n", "list.yml": "[a]"})
	for path, want := range map[string]string{"none.yml": "no such file", ".": "folder", "empty.yml": "empty", "list.yml": "mapping"} {
		_, err := spec.Load(filepath.Join(root, path), spec.Options{})
		var errs spec.Errors
		if !errors.As(err, &errs) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %q", path, err, want)
		}
		if code := berth.CodeOf(err); code != berth.Invalid {
			t.Errorf("%s has code %s", path, code)
		}
	}
	if os.Getuid() != 0 {
		secret := filepath.Join(root, "secret.yml")
		if err := os.WriteFile(secret, nil, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := spec.Load(secret, spec.Options{}); err == nil {
			t.Error("a file that cannot be read is taken")
		}
	}
}

func TestOverridesOfOptions(t *testing.T) {
	w := berth.Workspace{Subscription: "s", Group: "g", Name: "w"}
	r, err := spec.LoadBytes([]byte("command: x\nenvironment: azureml:e:1\ncompute: c\n"),
		spec.Options{Kind: "job", Name: "mine", Workspace: w, Experiment: "exp"})
	if err != nil {
		t.Fatal(err)
	}
	m := r.Main()
	if m.Name != "mine" || m.Type != "jobs" {
		t.Errorf("%s/%s", m.Type, m.Name)
	}
	for _, want := range []string{w.ResourceID("computes", "c"), w.ResourceID("environments", "e", "versions", "1"), `"experimentName":"exp"`, `"displayName":"mine"`} {
		if !bytes.Contains(m.Body, []byte(want)) {
			t.Errorf("no %s in %s", want, m.Body)
		}
	}
}

// TestSyntaxErrors: what is not YAML is reported like any other error, with file, line and column,
// and without the name of the parser.
func TestSyntaxErrors(t *testing.T) {
	for text, want := range map[string]string{
		"command: x\noutputs:\n  o: {path: a/${{name}}/b, type: uri_file}\n": "f.yml:3:16: is not valid YAML: did not find expected ',' or '}' (while parsing a flow mapping that begins at 3:6) (put ${{ }} in quotes inside { } or [ ])",
		"command: x\n\tname: y\n": "f.yml:2:1: is not valid YAML: found a tab character that violates indentation",
		"a: @x\n":                 "f.yml:1:4: is not valid YAML: found character that cannot start any token",
		"command: \"x\n":          "f.yml:2:1: is not valid YAML: found unexpected end of stream (while scanning a quoted scalar that begins at 1:10)",
		"a: *nobody\n":            "f.yml:1:4: is not valid YAML: unknown anchor 'nobody'",
	} {
		_, err := spec.LoadBytes([]byte(text), spec.Options{File: "f.yml"})
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "go-yaml") {
			t.Errorf("%q gives\n%v, want\n%s", text, err, want)
		}
	}
}

// TestNoKind: a kind nobody knows is refused with the nearest one, and a file that is part of
// something else with what it is.
func TestNoKind(t *testing.T) {
	for kind, want := range map[string]string{
		"jobb":        `unknown kind jobb (did you mean "job"?)`,
		"conda":       "refer to it with conda_file in an environment",
		"mltable":     "data of type mltable",
		"data_import": "are not supported",
	} {
		_, err := spec.LoadBytes([]byte("a: 1\n"), spec.Options{Kind: kind, File: "f.yml"})
		if err == nil || !strings.Contains(err.Error(), "f.yml: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v", kind, err)
		}
	}
}
