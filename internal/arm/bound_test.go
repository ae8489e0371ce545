package arm_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/arm"
)

// counter counts what a template asks for.
type counter struct {
	recorder
	gets int
}

func (c *counter) Get(id, version string) (map[string]any, error) {
	c.gets++
	return c.recorder.Get(id, version)
}

// TestReferences: only resources of known types are asked for, and not without end.
func TestReferences(t *testing.T) {
	const group = "/subscriptions/sub/resourceGroups/lab/"
	for id, want := range map[string]string{
		group + "providers/Microsoft.Compute/disks/d":    "there are no resources of type Microsoft.Compute/disks",
		group + "providers/T/a/n/logs":                   "is not the id of a resource",
		group + "providers/T/a/..":                       "is not the id of a resource",
		"/subscriptions/sub":                             "is not the id of a resource",
		"/subscriptions/sub/resourceGroups/lab":          "is not the id of a resource",
		"/subscriptions/sub/other/lab/providers/T/a/n":   "is not the id of a resource",
		group + "providers/T/a/":                         "is not the id of a resource",
		group + "providers/Microsoft.Compute/a/n/logs/x": "there are no resources of type Microsoft.Compute/a/logs",
	} {
		tmpl, err := arm.Parse(t.Context(), place, object(t, `{"resources": [{"type": "T/a", "name": "n", "properties": {"x": "[reference('`+id+`')]"}}]}`), nil, known)
		if err != nil {
			t.Fatal(err)
		}
		c := &counter{}
		if err := tmpl.Deploy(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) || c.gets != 0 {
			t.Errorf("%s: %v after %d calls, want %q", id, err, c.gets, want)
		}
	}
	tmpl, err := arm.Parse(t.Context(), place, object(t, `{"resources": [{"type": "T/a", "name": "n", "properties": {}}, {"type": "T/a", "name": "m", "properties": {
		"copy": [{"name": "x", "count": 800, "input": ["[reference('n')]", "[reference('n')]"]}]}}]}`), nil, known)
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{}
	if err := tmpl.Deploy(t.Context(), c); berth.CodeOf(err) != berth.Limit || !strings.Contains(err.Error(), "at most 1000 times") || c.gets != 1000 {
		t.Errorf("%v after %d calls", err, c.gets)
	}
}

// TestWork: what a template reads is counted, not only what comes of it.
func TestWork(t *testing.T) {
	many := strings.Repeat("range(0, 10000), ", 50)
	long := strings.Repeat("x", 20000)
	for name, tt := range map[string]struct{ template, want string }{
		"union": {`{"resources": [], "variables": {"u": "[union(` + strings.TrimSuffix(many, ", ") + `)]"}, "outputs": {"x": {"type": "array", "value": "[variables('u')]"}}}`, "more than 10000 elements together"},
		"parsing": {`{"resources": [], "outputs": {"x": {"type": "object", "value": {"copy": [{"name": "a", "count": 800, "input": {"copy": [{"name": "b", "count": 800,
			"input": "[if(true(), 1, '` + long + `')]"}]}}]}}}}`, "takes too much work"},
	} {
		tmpl, err := arm.Parse(t.Context(), place, object(t, tt.template), nil, known)
		if err == nil {
			_, err = tmpl.Outputs(t.Context())
		}
		if berth.CodeOf(err) != berth.Limit || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnion: equal elements are one, whatever they are.
func TestUnion(t *testing.T) {
	got, err := evaluated(t, "array", `[union(json('[1, "1", {"a": [1, 2], "b": null}]'), createArray(1, true()), json('[{"b": null, "a": [1, 2]}, null, 1.5, 1.5, null]'))]`, "")
	if want := `[1,"1",{"a":[1,2],"b":null},true,null,1.5]`; err != nil || got != want {
		t.Errorf("%s, want %s (%v)", got, want, err)
	}
}

// TestSecretsInErrors: values of secure parameters are in no error, however they come into one.
func TestSecretsInErrors(t *testing.T) {
	const params = `"parameters": {"key": {"type": "securestring"}, "deep": {"type": "secureObject"}}, `
	given := parameters("key", "S3cret\"<word>", "deep", map[string]any{"in": []any{"0ther-secret"}})
	for name, text := range map[string]string{
		"name":   `"resources": [{"type": "T/a", "name": "[concat(parameters('key'), '/x')]"}]`,
		"twice":  `"resources": [{"type": "T/a", "name": "[parameters('deep').in[0]]"}, {"type": "T/a", "name": "[toUpper(parameters('deep').in[0])]"}]`,
		"depend": `"resources": [{"type": "T/a", "name": "n", "dependsOn": ["[toLower(parameters('key'))]"]}]`,
		"made":   `"resources": [{"type": "T/a", "name": "[parameters('deep').in[0]]"}]`,
		"output": `"resources": [], "outputs": {"x": {"type": "string", "value": "[createObject('a', 1)[parameters('key')]]"}}`,
	} {
		tmpl, err := arm.Parse(t.Context(), place, object(t, "{"+params+text+"}"), given, known)
		if err == nil {
			err = tmpl.Deploy(t.Context(), &recorder{fail: "0ther-secret"})
		}
		if err == nil {
			_, err = tmpl.Outputs(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), "(secure)") || berth.CodeOf(err) == berth.Internal {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, part := range []string{"s3cret", "word", "0ther", "-secret"} {
			if strings.Contains(strings.ToLower(err.Error()), part) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// leaver is a client that is gone once the first resource was made.
type leaver struct {
	recorder
	leave func()
}

func (l *leaver) Make(r arm.Resource) error {
	l.leave()
	return l.recorder.Make(r)
}

// TestGone: nothing is evaluated or made for a client that is gone.
func TestGone(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	text := `{"resources": [{"type": "T/a", "name": "one"}, {"type": "T/a", "name": "two"}], "outputs": {"x": {"type": "string", "value": "[toLower('A')]"}}}`
	tmpl, err := arm.Parse(ctx, place, object(t, text), nil, known)
	if err != nil {
		t.Fatal(err)
	}
	l := &leaver{leave: leave}
	if err := tmpl.Deploy(ctx, l); !errors.Is(err, context.Canceled) || len(l.made) != 1 {
		t.Errorf("%v; made %v", err, l.made)
	}
	if _, err := tmpl.Outputs(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := arm.Parse(ctx, place, object(t, `{"resources": [{"type": "T/a", "name": "[toLower('A')]"}]}`), nil, known); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
