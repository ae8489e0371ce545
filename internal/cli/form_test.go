package cli_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth/internal/cli"
)

// TestForms holds what az 2.91 itself prints of these values.
func TestForms(t *testing.T) {
	for _, c := range []struct{ name, value, query, tsv, table string }{
		{"text", `"Completed"`, "", "Completed\n", "Result\n---------\nCompleted\n"},
		{"number", `3`, "", "3\n", "Result\n--------\n3\n"},
		{"truth", `true`, "", "true\n", "Result\n--------\nTrue\n"},
		{"scalars", `["a", null, true, 2.5]`, "", "a\nNone\ntrue\n2.5\n", "Result\n--------\na\n\nTrue\n2.5\n"},
		{
			"object", `{"name": "a", "id": "x", "type": "t", "n": 1, "ok": true, "list": [1, 2], "map": {"k": 1}, "none": null}`, "",
			"x\t2\t\t1\ta\tNone\tTrue\tt\n", "N    Name    Ok\n---  ------  ----\n1    a       True\n",
		},
		{
			"objects", `[{"name": "long name", "v": "1"}, {"name": "b", "v": "22"}]`, "", "long name\t1\nb\t22\n",
			"Name       V\n---------  ---\nlong name  1\nb          22\n",
		},
		{"lists", `[["a", "b"], ["c", null]]`, "", "a\tb\nc\tNone\n", "Column1    Column2\n---------  ---------\na          b\nc\n"},
		{"letters", `[{"a": "grün", "bb": "x"}]`, "", "grün\tx\n", "A     Bb\n----  ----\ngrün  x\n"},
		{
			"lines", `[{"name": "a", "text": "one\ntwo"}, {"name": "b", "text": "three"}]`, "", "a\tone\ntwo\nb\tthree\n",
			"Name    Text\n------  ------\na       one\n        two\nb       three\n",
		},
		{"nothing", `[]`, "", "", "\n"},
		{"a query's order", `[{"x": "1", "y": "two"}]`, "[].{z: x, a: y, id: x, nul: nope, l: [x]}", "1\ttwo\t1\tNone\t1\n", "Z    A\n---  ---\n1    two\n"},
		{
			"uneven", `[{"a": "1", "c": "3"}, {"a": "1", "b": "2", "c": "3"}]`, "", "1\t3\n1\t2\t3\n",
			"A    C    B\n---  ---  ---\n1    3\n1    3    2\n",
		},
		{
			"deep cells", `[["a", {"k": "v'", "n": null, "t": true}, ["x", 1.5]]]`, "", "a\t\t2\n",
			"Column1    Column2                            Column3\n---------  ---------------------------------  ----------\na          {'k': \"v'\", 'n': None, 't': True}  ['x', 1.5]\n",
		},
		{"one field", `{"status": "Running"}`, "status", "Running\n", "Result\n--------\nRunning\n"},
	} {
		var v any
		if err := json.Unmarshal([]byte(c.value), &v); err != nil {
			t.Fatal(err)
		}
		for form, print := range map[string]func(any, string) (string, error){c.tsv: cli.TSV, c.table: cli.Table} {
			got, err := print(v, c.query)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(form, got); diff != "" {
				t.Errorf("%s (-az +ours):\n%s", c.name, diff)
			}
		}
	}
}

// TestColumns: a column of tsv is the same member in every line where az's manners are not asked
// for.
func TestColumns(t *testing.T) {
	got, err := cli.EvenTSV([]any{map[string]any{"a": "1", "c": "3"}, map[string]any{"a": "1", "b": "2", "c": "3"}})
	if want := "1\t\t3\n1\t2\t3\n"; err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

// TestFieldsStayApart: tabs and ends of lines inside one of several values do not part them; a
// value alone is printed as it is.
func TestFieldsStayApart(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{[]any{[]any{"a\tb", "c\r\nd", 1}, []any{"x", "y\n", 2}}, "a b\tc d\t1\nx\ty \t2\n"},
		{[]any{"one\ntwo", "three"}, "one two\nthree\n"},
		{"one\n\ttwo", "one\n\ttwo\n"},
	} {
		if got, err := cli.EvenTSV(c.v); err != nil || got != c.want {
			t.Errorf("%q, %v; want %q", got, err, c.want)
		}
	}
}

// TestYAML holds what az 2.91 itself prints of these values.
func TestYAML(t *testing.T) {
	for _, c := range []struct{ value, want string }{
		{`"Completed"`, "Completed\n...\n"},
		{`3`, "3\n...\n"},
		{`"3"`, "'3'\n"},
		{`[]`, "[]\n"},
		{`{"a": {}, "b": [], "c": null, "d": true, "e": 1.5, "f": ""}`, "a: {}\nb: []\nc: null\nd: true\ne: 1.5\nf: ''\n"},
		{`{"n": "1", "y": "yes", "off": "2026-11-15", "d": "2026-11-15T15:47:31.900504+00:00"}`, "d: '2026-11-15T15:47:31.900504+00:00'\nn: '1'\n'off': '2026-11-15'\ny: 'yes'\n"},
		{`{"list": ["a", {"x": 1, "y": "1:30"}, ["b"]]}`, "list:\n- a\n- x: 1\n  y: '1:30'\n- - b\n"},
		{`{"c": "one\ntwo\n", "t": "tab\tin", "q": "it's: #1", "p": "a 'b'", "x": "- no"}`, "c: 'one\n\n  two\n\n  '\np: a 'b'\nq: 'it''s: #1'\nt: \"tab\\tin\"\nx: '- no'\n"},
		{
			`{"command": "echo hello; mkdir -p outputs; echo x > outputs/o.txt; ls ${{inputs.d}} > ${{outputs.r}}/l and more"}`,
			"command: echo hello; mkdir -p outputs; echo x > outputs/o.txt; ls ${{inputs.d}} >\n  ${{outputs.r}}/l and more\n",
		},
		{`{"c": "a\n b\n"}`, "c: \"a\\n b\\n\"\n"},
		{`{"u": "grün ☃"}`, "u: grün ☃\n"},
	} {
		var v any
		if err := json.Unmarshal([]byte(c.value), &v); err != nil {
			t.Fatal(err)
		}
		got, err := cli.YAML(v)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-az +ours):\n%s", c.value, err, diff)
		}
	}
}

func TestColor(t *testing.T) {
	const text = "{\n  \"a\": \"x: \\\"y\\\"\",\n  \"n\": 1,\n  \"l\": [\n    true\n  ]\n}\n"
	const want = "{\n  \x1b[34m\"a\"\x1b[0m: \x1b[32m\"x: \\\"y\\\"\"\x1b[0m,\n  \x1b[34m\"n\"\x1b[0m: \x1b[36m1\x1b[0m,\n  \x1b[34m\"l\"\x1b[0m: [\n    \x1b[36mtrue\x1b[0m\n  ]\n}\n"
	if diff := cmp.Diff(want, string(cli.ColorOf([]byte(text)))); diff != "" {
		t.Error(diff)
	}
}

func TestHours(t *testing.T) {
	for v, want := range map[float64]string{0: "0.00", 3e-5: "<0.0001", 0.00056: "0.00056", 0.0314: "0.031", 0.5: "0.50", 1234.567: "1234.57"} {
		if got := cli.Hours(v); got != want {
			t.Errorf("%v hours are %q, want %q", v, got, want)
		}
	}
}
