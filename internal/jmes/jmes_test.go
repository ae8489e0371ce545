package jmes_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth/internal/jmes"
)

const jobs = `[
	{"name": "calm_boat", "status": "Completed", "tags": {"team": "blue", "n": "1"}, "seconds": 12, "services": {"Studio": {"endpoint": "https://x/1"}}, "children": [["a"], ["b", "c"]]},
	{"name": "dull_lake", "status": "Failed", "tags": {"team": "red"}, "seconds": 3.5, "services": null, "children": []},
	{"name": "vast_road", "status": "Completed", "tags": {}, "seconds": 40}
]`

func decode(t *testing.T, text string) any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestQueries is what people write after --query.
func TestQueries(t *testing.T) {
	for _, c := range []struct{ query, want string }{
		{"[0].name", `"calm_boat"`},
		{"[-1].name", `"vast_road"`},
		{"[0].services.Studio.endpoint", `"https://x/1"`},
		{"[1].services.Studio.endpoint", `null`},
		{"[?status=='Completed'].name", `["calm_boat","vast_road"]`},
		{"[?status==`Completed`].name", `["calm_boat","vast_road"]`},
		{"[?status=='Completed'] | [0].name", `"calm_boat"`},
		{"[?status=='Completed' && tags.team=='blue'].name | [0]", `"calm_boat"`},
		{"[?status!='Completed' || seconds>`20`].name", `["dull_lake","vast_road"]`},
		{"[?!services].name", `["dull_lake","vast_road"]`},
		{"[?(status=='Failed' || seconds<`13`) && tags.team].name", `["calm_boat","dull_lake"]`},
		{"[?contains(name, 'lake')].name", `["dull_lake"]`},
		{"[?name>='dull_lake'].name", `["dull_lake","vast_road"]`},
		{"[?'d'>name].name", `["calm_boat"]`},
		{"[?name>`1`].name", `[]`},
		{"[?seconds<'x'].name", `[]`},
		{"[?starts_with(name, 'v')].{N: name, S: status}", `[{"N":"vast_road","S":"Completed"}]`},
		{"[].[name, status]", `[["calm_boat","Completed"],["dull_lake","Failed"],["vast_road","Completed"]]`},
		{"[].tags.team", `["blue","red"]`},
		{"[*].tags | [2]", `{}`},
		{"[0].tags.*", `["1","blue"]`},
		{"[].children[][]", `["a","b","c"]`},
		{"[].children[]", `[["a"],["b","c"]]`},
		{"[0:2].name", `["calm_boat","dull_lake"]`},
		{"[::-1].name", `["vast_road","dull_lake","calm_boat"]`},
		{"[:1].name", `["calm_boat"]`},
		{"[9:].name", `[]`},
		{"length(@)", `3`},
		{"length([0].name)", `9`},
		{"max_by(@, &seconds).name", `"vast_road"`},
		{"min_by(@, &seconds).name", `"dull_lake"`},
		{"sort_by(@, &seconds)[].name", `["dull_lake","calm_boat","vast_road"]`},
		{"sort([].name) | reverse(@)", `["vast_road","dull_lake","calm_boat"]`},
		{"sum([].seconds)", `55.5`},
		{"avg([].seconds)", `18.5`},
		{"sum([0:1].seconds)", `12`},
		{"avg([0:1].seconds)", `12.0`},
		{"join(', ', [].name)", `"calm_boat, dull_lake, vast_road"`},
		{"keys([0].tags)", `["n","team"]`},
		{"map(&status, @)", `["Completed","Failed","Completed"]`},
		{"[0].to_number(tags.n)", `1`},
		{"to_string([0].tags)", `"{\"n\":\"1\",\"team\":\"blue\"}"`},
		{"not_null([1].services, 'none')", `"none"`},
		{"merge([0].tags, {team: 'green'}).team", `"green"`},
		{"type([0].seconds)", `"number"`},
		{"ceil([1].seconds)", `4`},
		{"floor([1].seconds)", `3`},
		{"abs(`-2.50`)", `2.50`},
		{"[0].{b: name, a: status}", `{"b":"calm_boat","a":"Completed"}`},
		{`[0]."name"`, `"calm_boat"`},
		{"'it''s'", ``},
		{`'it\'s'`, `"it's"`},
		{"nothing", `null`},
		{"nothing.at.all", `null`},
		{"[?seconds > 'x'].name", `[]`},
	} {
		got, err := search(c.query, decode(t, jobs))
		if c.want == "" {
			if err == nil {
				t.Errorf("%s: gives %v, want an error", c.query, got)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != c.want {
			t.Errorf("%s: gives %s, want %s", c.query, text, c.want)
		}
	}
}

// TestOrder: the keys of a multi-select hash keep the order they were written in, which is the
// order of columns.
func TestOrder(t *testing.T) {
	got, err := search("[0].{zeta: name, alpha: status}", decode(t, jobs))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"zeta", "alpha"}, got.(*jmes.Object).Keys); diff != "" {
		t.Error(diff)
	}
}

// A few characters must not make more than a machine holds.
func TestBombs(t *testing.T) {
	v := decode(t, `{"a": "text"}`)
	for _, query := range []string{
		strings.Repeat("[@,@]|", 60) + "@",
		strings.Repeat("{a:@,b:@}|", 60) + "@",
		strings.Repeat("[@,@]|to_string(@)|", 60) + "@",
		strings.Repeat("to_string([", 60) + "@,@" + strings.Repeat(",@,@])", 60),
		strings.Repeat("[to_string(@),to_string(@)]|join('',@)|", 60) + "@",
		"to_array(a)|" + strings.Repeat("[@,@]|[]|", 60) + "@",
		strings.Repeat("[@,@]|map(&@,@)|", 60) + "@",
	} {
		if got, err := search(query, v); err == nil || !strings.Contains(err.Error(), "too large") {
			t.Errorf("%.60s gives %.60v, %v", query, got, err)
		}
	}
}

// TestMistakes says what is wrong and where.
func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		query string
		at    int
		words string
	}{
		{"", 0, "ends too early"},
		{"[?status=='Completed'", 21, "expected a ] to close the filter"},
		{"[?status='Completed']", 8, "write =="},
		{"name.", 5, "after the dot"},
		{"name[", 5, "a number, a slice or *"},
		{"name]", 4, "expected the end of the query"},
		{"{a b}", 3, "expected a : after"},
		{"{1: b}", 1, "the name of a member"},
		{"foo bar", 4, "expected the end of the query"},
		{"größe", 2, "has no meaning"},
		{"a\x1b[2J", 1, `the character \x1b has no meaning`},
		{"nosuch(@)", 0, "there is no function nosuch"},
		{"length(@, @)", 0, "takes 1 argument, not 2"},
		{"join(',')", 0, "takes 2 arguments, not 1"},
		{"merge()", 0, "takes 1 argument or more, not 0"},
		{"sort(@,)", 7, "expected an argument"},
		{"&name", 0, "a name, a value or a bracket"},
		{"'open", 0, "is not closed"},
		{"\"a\\x\"", 0, "is not a JSON string"},
		{"[1:2:0]", 6, "cannot be 0"},
		{"[99999999999999999999]", 1, "too large"},
		{"a.-", 2, "expected a number"},
		{strings.Repeat("(", 3000), 500, "too deeply"},
	} {
		_, err := jmes.Parse(c.query)
		var bad *jmes.SyntaxError
		if !errors.As(err, &bad) {
			t.Errorf("%.40s: %v", c.query, err)
			continue
		}
		if bad.At != c.at || !strings.Contains(bad.Msg, c.words) {
			t.Errorf("%.40s: at %d: %s; want at %d: %s", c.query, bad.At, bad.Msg, c.at, c.words)
		}
	}
	if _, err := jmes.Parse(strings.Repeat("é", 3000)); err == nil || len(err.Error()) > 2*300 {
		t.Errorf("a long message: %v", err)
	}
	_, err := jmes.Parse("größe")
	if want := `at character 3 of "größe"`; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v does not end in %s", err, want)
	}
}

// TestWrongTypes: a function that is given the wrong thing says which argument.
func TestWrongTypes(t *testing.T) {
	for query, words := range map[string]string{
		"length([0].seconds)":     "length: argument 1 must be string or array or object, not number",
		"sum([].name)":            "sum: argument 1 must be numbers, not array of string",
		"join(',', [].seconds)":   "join: argument 2 must be strings",
		"sort_by(@, &tags)":       "sort_by: the expression must return only numbers or only strings, not object",
		"max_by(@, &nothing)":     "not null",
		"sort_by(@, 'x')":         "argument 2 must be expression, not string",
		"[?length(seconds)==`1`]": "length: argument 1",
		"keys(@)":                 "keys: argument 1 must be object, not array",
	} {
		_, err := search(query, decode(t, jobs))
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v; want %s", query, err, words)
		}
	}
}

// TestSlices follow Python's own rule, checked against the plainest way to say it.
func TestSlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 6).Draw(t, "n")
		list := make([]any, n)
		for i := range list {
			list[i] = float64(i)
		}
		bound := rapid.IntRange(-9, 9)
		from, to := bound.Draw(t, "from"), bound.Draw(t, "to")
		step := rapid.SampledFrom([]int{-3, -2, -1, 1, 2, 3, 7, -7}).Draw(t, "step")
		query, err := json.Marshal([]int{from, to, step})
		if err != nil {
			t.Fatal(err)
		}
		got, err := search(strings.ReplaceAll(string(query), ",", ":"), list)
		if err != nil {
			t.Fatal(err)
		}
		norm := func(i int) int {
			if i < 0 {
				i += n
			}
			return i
		}
		want := []any{}
		for k := range 20 {
			i := norm(from) + k*step
			if step > 0 && norm(from) < 0 {
				i = k * step
			}
			if step < 0 && norm(from) >= n {
				i = n - 1 + k*step
			}
			if i < 0 || i >= n || step > 0 && i >= norm(to) || step < 0 && i <= norm(to) {
				break
			}
			want = append(want, list[i])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s of %d items (-want +got):\n%s", query, n, diff)
		}
	})
}

// TestAnyWords puts words of the language together at random: whatever they mean, the answer is
// JSON or an error with a place.
func TestAnyWords(t *testing.T) {
	words := strings.Fields("name status tags . . [ ] [] [? [*] [0] [-1] [1:] [::-1] * @ ( ) { } , : | || && & ! == != < >= 'x' `1` `[1]` \"q\" length( sort_by( map( merge( to_string( abs(")
	v := decode(t, jobs)
	rapid.Check(t, func(t *rapid.T) {
		query := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 0, 12).Draw(t, "words"), "")
		answers(t, query, v)
	})
}

// answers checks that a query has an answer that is JSON, or an error that knows its place.
func answers(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, query string, v any,
) {
	t.Helper()
	e, err := jmes.Parse(query)
	if err != nil {
		var bad *jmes.SyntaxError
		if !errors.As(err, &bad) || bad.At < 0 || bad.At > len(query) {
			t.Fatalf("%q: %v", query, err)
		}
		return
	}
	got, err := e.Search(v)
	if err != nil {
		return
	}
	if _, err := json.Marshal(got); err != nil {
		t.Fatalf("%q gives %#v: %v", query, got, err)
	}
}

// FuzzSearch looks for queries that end the program, and for answers that are no JSON.
func FuzzSearch(f *testing.F) {
	for _, q := range []string{
		"[?status=='Completed'].name | [0]", "a.b[0].c[*].d", "{a: b, \"c d\": `[1, 2]`}", "sort_by(@, &seconds)[::-1].[name, to_string(tags)]",
		"merge(a, b) || not_null(c, 'd') && !e", "[][?a<=`1`].b.*", "max_by(@,&seconds).services.Studio.endpoint", "'\\'' == \"\\u0041\"", "map(&abs(@), [1:2:-3])",
	} {
		f.Add(q)
	}
	dec := json.NewDecoder(strings.NewReader(jobs))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, query string) { answers(t, query, v) })
}
