package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth/internal/cli"
)

const before = `{"name": "j", "tags": {"team": "blue"}, "limits": {"timeout": 60}, "args": ["a", "b"], "rules": [{"name": "x", "port": 1}, {"name": "y", "port": 2}]}`

func TestEdit(t *testing.T) {
	for _, c := range []struct{ words, want string }{
		{"--set tags.owner=ann", `{"tags": {"team": "blue", "owner": "ann"}}`},
		{"--set tags.n=5 tags.team=red", `{"tags": {"n": "5", "team": "red"}}`},
		{"--set limits.timeout=90", `{"limits": {"timeout": 90}}`},
		{"--set limits.timeout=90 --force-string", `{"limits": {"timeout": "90"}}`},
		{"--set new.deep.er=1", `{"new": {"deep": {"er": 1}}}`},
		{`--set limits={"timeout":1,"x":[true,null]}`, `{"limits": {"timeout": 1, "x": [true, null]}}`},
		{`--set limits={'timeout':True,'w':'it"s'}`, `{"limits": {"timeout": true, "w": "it\"s"}}`},
		{"--set args[0]=z args[-1]=y", `{"args": ["z", "y"]}`},
		{"--set rules[1].port=3", `{"rules": [{"name": "x", "port": 1}, {"name": "y", "port": 3}]}`},
		{"--set rules[name=x].port=9", `{"rules": [{"name": "x", "port": 9}, {"name": "y", "port": 2}]}`},
		{"--set url=https://h/p?a=b", `{"url": "https://h/p?a=b"}`},
		{"--set empty=", `{"empty": ""}`},
		{"--add args c d", `{"args": ["a", "b", "c", "d"]}`},
		{"--add args 1 x=2 y=z 3", `{"args": ["a", "b", 1, {"x": "2", "y": "z"}, 3]}`},
		{"--add new one", `{"new": ["one"]}`},
		{"--remove tags.team", `{"tags": {}}`},
		{"--remove limits", `{"limits": null}`},
		{"--remove args 0", `{"args": ["b"]}`},
		{"--remove args -1", `{"args": ["a"]}`},
		{"--remove rules[name=x]", `{"rules": [{"name": "y", "port": 2}]}`},
		{"--remove tags.team --set tags.team=back --add args c --remove args 0", `{"tags": {"team": "back"}, "args": ["b", "c"]}`},
	} {
		got, want := object(t, before), object(t, before)
		for k, v := range object(t, c.want) {
			if v == nil {
				delete(want, k)
			} else if m, ok := v.(map[string]any); ok && k == "tags" && len(m) > 0 {
				for tag, text := range m {
					want[k].(map[string]any)[tag] = text
				}
			} else {
				want[k] = v
			}
		}
		if err := cli.Edit(got, strings.Fields(c.words)...); err != nil {
			t.Errorf("%s: %v", c.words, err)
			continue
		}
		b, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, object(t, string(b))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.words, diff)
		}
	}
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return m
}

// TestEditMistakes names the place of what cannot be understood, and what is there instead of what
// is not.
func TestEditMistakes(t *testing.T) {
	for words, want := range map[string]string{
		"--set tags":              "there is no =",
		"--set =x":                "the path is empty",
		"--set a..b=1":            `a name is missing beside the dot, at character 2 of "a..b"`,
		"--set .a=1":              "at character 1",
		"--set a.=1":              "at character 2",
		`--set a."b=1`:            `there is no =`,
		`--set a."b"c=1`:          "expected a . or a [ after the quote, at character 6",
		"--set a[0=1":             "this [ is not closed, at character 2",
		"--set a[b=3":             "this [ is not closed, at character 2 of \"a[b=3\"",
		"--set args[0=1":          "this [ is not closed, at character 5",
		"--set args[x]=1":         `"x" is neither an index nor KEY=VALUE, at character 6`,
		"--set args]=1":           "closes nothing, at character 5",
		"--set args[0]x=1":        "expected a . or a [ after the ], at character 8",
		"--set [0]=1":             "expected a name before the [",
		"--set rules[=x].a=1":     "the name is missing before the =",
		"--set args[7]=1":         "there is no item [7]; the list has 2",
		"--set tags[0]=1":         "is an item of a list, and this is not a list",
		"--set name.x=1":          `"j" has no members, so no x`,
		"--set rules[name=z].p=1": "[name=z] matches no item",
		"--add args":              "say what to add",
		"--add tags x":            "tags is not a list",
		"--add name x":            "name is not a list",
		"--remove nothing":        "there is no nothing; there are args, limits, name, rules, tags",
		"--remove tag.team":       "there is no tag; did you mean tags?",
		"--remove args 5":         "there is no item [5]",
		"--remove limits 0":       "is an item of a list, and this is not a list",
		"--set größe[=1":          "this [ is not closed, at character 6",
	} {
		err := cli.Edit(object(t, before), strings.Fields(words)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", words, err, want)
		}
	}
}

// TestSetThenGet: what was set is there, and nothing else has changed.
func TestSetThenGet(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		key := rapid.StringMatching(`[a-z_]{1,8}`)
		path := rapid.SliceOfN(key, 1, 4).Draw(rt, "path")
		value := rapid.StringMatching(`[a-z][a-z0-9=.\[\] ]{0,12}`).Draw(rt, "value")
		m := map[string]any{}
		if err := cli.Edit(m, "--set", strings.Join(path, ".")+"="+value); err != nil {
			rt.Fatal(err)
		}
		var v any = m
		for _, k := range path {
			inner, ok := v.(map[string]any)
			if !ok || len(inner) != 1 {
				rt.Fatalf("%v of %v", k, m)
			}
			v = inner[k]
		}
		if v != value && value != "true" && value != "false" && value != "null" {
			rt.Fatalf("%q is there instead of %q", v, value)
		}
		if err := cli.Edit(m, "--remove", path[0]); err != nil || len(m) != 0 {
			rt.Fatalf("%v is left: %v", m, err)
		}
	})
}

// FuzzEdit feeds the grammar of --set, --add and --remove.
func FuzzEdit(f *testing.F) {
	for _, w := range []string{"--set a.b[0].c=1", "--set rules[name=x].port={'a':1}", "--add args x=1 y", "--remove args 0", "--remove rules[name=x]", "--set a..b=[", "--set a[=x]=[1"} {
		f.Add(w)
	}
	f.Fuzz(func(t *testing.T, words string) {
		m := object(t, before)
		err := cli.Edit(m, strings.Split(words, " ")...)
		if _, bad := json.Marshal(m); bad != nil {
			t.Fatalf("%q makes %v: %v (%v)", words, m, bad, err)
		}
	})
}
