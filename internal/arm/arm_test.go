package arm_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/arm"
)

var place = arm.Place{Subscription: "sub", Group: "lab", Location: "westeurope", Tenant: "ten", Deployment: "dep"}

// recorder keeps what a template makes.
type recorder struct {
	made []arm.Resource
	fail string // the name of a resource that cannot be made
}

func known(typ string) error {
	if strings.HasPrefix(typ, "Microsoft.Compute/") {
		return berth.Errorf(berth.Unsupported, "there are no resources of type %s", typ)
	}
	return nil
}

func (r *recorder) Known(typ string) error { return known(typ) }

func (r *recorder) Make(x arm.Resource) error {
	if x.Name == r.fail {
		return berth.Errorf(berth.Conflict, "%s is taken", x.Name)
	}
	r.made = append(r.made, x)
	return nil
}

func (r *recorder) Get(id, _ string) (map[string]any, error) {
	for _, x := range r.made {
		if x.ID == id {
			return map[string]any{"id": id, "name": x.Name, "properties": x.Body["properties"], "location": x.Body["location"]}, nil
		}
	}
	return nil, berth.Errorf(berth.NotFound, "there is no %s", id)
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return out
}

// parameters are those of a file: name, value, name, value ….
func parameters(pairs ...any) map[string]any {
	out := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		out[fmt.Sprint(pairs[i])] = map[string]any{"value": pairs[i+1]}
	}
	return out
}

// evaluated is the value of an expression in an output, as JSON.
func evaluated(t *testing.T, typ, expression, rest string) (string, error) {
	t.Helper()
	b, err := json.Marshal(expression)
	if err != nil {
		t.Fatal(err)
	}
	text := `{"resources": [], "outputs": {"x": {"type": "` + typ + `", "value": ` + string(b) + `}}` + rest + `}`
	tmpl, err := arm.Parse(t.Context(), place, object(t, text), nil, known)
	if err != nil {
		return "", err
	}
	if err := tmpl.Deploy(t.Context(), &recorder{}); err != nil {
		return "", err
	}
	out, err := tmpl.Outputs(t.Context())
	if err != nil {
		return "", err
	}
	x, _ := out["x"].(map[string]any)
	b, err = json.Marshal(x["value"])
	return string(b), err
}

func TestFunctions(t *testing.T) {
	for _, tt := range []struct{ typ, expr, want string }{
		{"string", "plain", `"plain"`},
		{"string", "[[not one]", `"[not one]"`},
		{"string", "[concat('a', 1, 'it''s')]", `"a1it's"`},
		{"array", "[concat(createArray(1), createArray('b'))]", `[1,"b"]`},
		{"string", "[resourceGroup().location]", `"westeurope"`},
		{"string", "[subscription().subscriptionId]", `"sub"`},
		{"string", "[resourceId('Microsoft.X/a/b', 'n', 'm')]", `"/subscriptions/sub/resourceGroups/lab/providers/Microsoft.X/a/n/b/m"`},
		{"string", "[resourceId('other', 'Microsoft.X/a', 'n')]", `"/subscriptions/sub/resourceGroups/other/providers/Microsoft.X/a/n"`},
		{"string", "[resourceId('s2', 'other', 'Microsoft.X/a', 'n')]", `"/subscriptions/s2/resourceGroups/other/providers/Microsoft.X/a/n"`},
		{"string", "[subscriptionResourceId('Microsoft.X/a', 'n')]", `"/subscriptions/sub/providers/Microsoft.X/a/n"`},
		{"int", "[length(uniqueString('a', 'b'))]", `13`},
		{"bool", "[equals(uniqueString('a'), uniqueString('a'))]", `true`},
		{"bool", "[equals(uniqueString('a', 'b'), uniqueString('ab'))]", `false`},
		{"string", "[if(equals(1, 1), 'yes', parameters('x'))]", ``}, // names are checked in what is not evaluated too
		{"string", "[if(true(), 'yes', first(1))]", `"yes"`},
		{"bool", "[and(true(), or(false(), not(false())))]", `true`},
		{"bool", "[or(empty(''), empty(createArray(1)))]", `true`},
		{"string", "[format('{0}-{1:D3}-{{}}', 'a', 7)]", `"a-007-{}"`},
		{"string", "[toUpper(substring('berth', 1, 3))]", `"ERT"`},
		{"string", "[replace('a-b-c', '-', '')]", `"abc"`},
		{"string", "[padLeft(7, 3, '0')]", `"007"`},
		{"array", "[split('a,b;c', createArray(',', ';'))]", `["a","b","c"]`},
		{"string", "[join(skip(createArray('a', 'b', 'c'), 1), '+')]", `"b+c"`},
		{"string", "[take('abcdef', 2)]", `"ab"`},
		{"bool", "[contains(createObject('k', 1), 'K')]", `true`},
		{"object", "[union(createObject('a', createObject('x', 1)), json('{\"a\": {\"y\": 2}}'))]", `{"a":{"x":1,"y":2}}`},
		{"int", "[add(mul(3, 4), mod(7, 4))]", `15`},
		{"bool", "[greaterOrEquals(int('5'), 5)]", `true`},
		{"string", "[padLeft('abc', -9223372036854775808)]", `"abc"`},
		{"bool", "[less(-9223372036854775808, 1)]", `true`},
		{"bool", "[greater(9223372036854775807, -1)]", `true`},
		{"array", "[range(2, 3)]", `[2,3,4]`},
		{"int", "[max(1, 5, 3)]", `5`},
		{"string", "[createObject('A', createArray('x', 'y')).a[1]]", `"y"`},
		{"string", "[string(true())]", `"True"`},
		{"string", "[base64ToString(base64('hello'))]", `"hello"`},
		{"string", "[uri('https://h/a/', 'b')]", `"https://h/a/b"`},
		{"string", "[coalesce(null(), tryGet(createObject('a', 'b'), 'a'))]", `"b"`},
		{"string", "[deployment().name]", `"dep"`},
	} {
		got, err := evaluated(t, tt.typ, tt.expr, "")
		if tt.want == "" {
			if err == nil {
				t.Errorf("%s: %s", tt.expr, got)
			}
			continue
		}
		if err != nil || got != tt.want {
			t.Errorf("%s = %s, want %s (%v)", tt.expr, got, tt.want, err)
		}
	}
}

// TestDocumented: docs/clients.md lists the functions there are.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "The functions are ")
	list, _, _ = strings.Cut(list, ". ")
	var documented []string
	for i, word := range strings.Split(strings.ToLower(list), "`") {
		if i%2 == 1 {
			documented = append(documented, word)
		}
	}
	slices.Sort(documented)
	if diff := cmp.Diff(arm.Functions(), documented); diff != "" {
		t.Error(diff)
	}
}

// TestRefusals: what is not understood is named, with its place.
func TestRefusals(t *testing.T) {
	deep := strings.Repeat("concat(", 100) + "'a'" + strings.Repeat(")", 100)
	for _, tt := range []struct{ template, want string }{
		{`{"resources": [{"type": "T/a", "name": "[shout('a')]"}]}`, "resources[0].name: there is no function shout"},
		{`{"resources": [{"type": "T/a", "name": "n", "properties": {"x": ["[listKeys('a', 'b')]"]}}]}`, "resources[0].properties.x[0]: function listKeys is not supported"},
		{`{"resources": [{"type": "T/a", "name": "[parameters('none')]"}]}`, `resources[0].name: there is no parameter "none"`},
		{`{"resources": [{"type": "T/a", "name": "[variables('none')]"}]}`, `resources[0].name: there is no variable "none"`},
		{`{"resources": [{"type": "T/a", "name": "[concat('a']"}]}`, "resources[0].name: column 12 of the expression"},
		{`{"resources": [{"type": "T/a", "name": "['a' 'b']"}]}`, "was not expected"},
		{`{"resources": [{"type": "T/a", "name": "['a]"}]}`, "the string has no end"},
		{`{"resources": [{"type": "T/a", "name": "[` + deep + `]"}]}`, "nested more than 64 deep"},
		{`{"resources": [{"type": "T/a", "name": "[toLower('a', 'b')]"}]}`, "toLower takes 1 argument, not 2"},
		{`{"resources": [{"type": "Microsoft.Compute/virtualMachines", "name": "v"}]}`, "resources[0]: there are no resources of type"},
		{`{"resources": [{"type": "T/a/b", "name": "n"}]}`, `resources[0].name: "n" does not fit the type T/a/b`},
		{`{"resources": [{"type": "T/a", "name": "../up"}]}`, "does not fit the type"},
		{`{"resources": [{"type": "T/a", "name": ".."}]}`, "does not fit the type"},
		{`{"resources": [{"type": "T/a", "name": "n"}, {"type": "T/a", "name": "N"}]}`, "N is also made by resources[0]"},
		{`{"resources": [{"type": "T/a", "name": "n", "dependsOn": ["m"]}]}`, `resources[0].dependsOn[0]: no resource of this template is called "m"`},
		{`{"resources": [{"type": "T/a", "name": "n", "dependsOn": ["m"]}, {"type": "T/a", "name": "m", "dependsOn": ["n"]}]}`, "depends on itself by way of others"},
		{`{"resources": [{"type": "T/a", "name": "n", "dependsOn": ["n"]}]}`, "resources[0].dependsOn[0]: the resource depends on itself"},
		{`{"variables": {"a": "[variables('b')]", "b": "[variables('a')]"}, "resources": [{"type": "T/a", "name": "[variables('a')]"}]}`, "refers to itself"},
		{`{"parameters": {"p": {"type": "text"}}, "resources": []}`, "parameters.p: type must be"},
		{`{"parameters": {"p": {"type": "string"}}, "resources": []}`, "parameters.p: has no value and no default"},
		{`{"parameters": {"p": {"type": "int", "defaultValue": "x"}}, "resources": []}`, "parameters.p: must be of type int, but is a string"},
		{`{"functions": [{"namespace": "me"}], "resources": []}`, "functions of a template's own are not supported"},
		{`{"resource": []}`, "resource: a template has no such member"},
		{`{"resources": [{"type": "T/a", "name": "[reference('x').y]"}]}`, "cannot be used here"},
		{`{"resources": [{"type": "T/a", "name": "n", "copy": {"name": "c", "count": 100000}}]}`, "must be an integer from 0 to 800"},
		{`{"resources": [{"type": "T/a", "name": "n", "condition": "yes"}]}`, "condition: must be true or false"},
		{`{"resources": [{"type": "T/a", "name": "n", "resourceGroup": "other"}]}`, "resources of other scopes"},
		{`{"resources": {"a": 1}}`, "resources.a: must be an object"},
	} {
		tmpl, err := arm.Parse(t.Context(), place, object(t, tt.template), nil, known)
		if err == nil {
			err = tmpl.Deploy(t.Context(), &recorder{})
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.100s: %v, want %q", tt.template, err, tt.want)
		}
	}
}

// TestBounded: small templates cannot make large values.
func TestBounded(t *testing.T) {
	var doubled strings.Builder
	for i := range 40 {
		fmt.Fprintf(&doubled, `"v%d": "[concat(variables('v%d'), variables('v%d'))]",`, i+1, i, i)
	}
	for name, text := range map[string]string{
		"doubling": `{"variables": {` + doubled.String() + `"v0": "aaaaaaaaaaaaaaaa"}, "resources": [{"type": "T/a", "name": "[variables('v40')]"}]}`,
		"replacing": `{"variables": {"a": "[padLeft('', 10000, 'x')]", "b": "[replace(variables('a'), 'x', variables('a'))]"},
			"resources": [{"type": "T/a", "name": "[variables('b')]"}]}`,
		"copying": `{"resources": [{"type": "T/a", "name": "n", "properties": {"copy": [{"name": "x", "count": 800, "input": {"copy":
			[{"name": "y", "count": 800, "input": "[padLeft('', 1000)]"}]}}]}}]}`,
	} {
		tmpl, err := arm.Parse(t.Context(), place, object(t, text), nil, known)
		if err == nil {
			err = tmpl.Deploy(t.Context(), &recorder{})
		}
		if err == nil || berth.CodeOf(err) != berth.Limit && !strings.Contains(err.Error(), "larger than") && !strings.Contains(err.Error(), "too large") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func read(t *testing.T, path string) map[string]any {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(strings.TrimSpace(line), "//") {
			lines = append(lines, line)
		}
	}
	return object(t, strings.Join(lines, ""))
}

// TestWorkspace deploys the example, which is made like the quickstart for a workspace.
func TestWorkspace(t *testing.T) {
	template := read(t, "../../examples/template/workspace.json")
	tmpl, err := arm.Parse(t.Context(), place, template, parameters("name", "lab1"), known)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	if err := tmpl.Deploy(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, x := range r.made {
		types = append(types, x.Type)
	}
	if len(types) != 4 || types[3] != "Microsoft.MachineLearningServices/workspaces" || slices.Contains(types, "Microsoft.ContainerRegistry/registries") {
		t.Errorf("made %v", types)
	}
	ws := r.made[3]
	props, _ := ws.Body["properties"].(map[string]any)
	if ws.Name != "mlw-lab1-dev" || ws.Body["location"] != "westeurope" || props["containerRegistry"] != nil ||
		props["keyVault"] != "/subscriptions/sub/resourceGroups/lab/providers/Microsoft.KeyVault/vaults/kv-lab1-dev" {
		t.Errorf("%+v", ws)
	}
	for name, bad := range map[string]map[string]any{
		"must be one of":               parameters("name", "lab1", "environment", "stage"),
		"its length must be at least":  parameters("name", "x"),
		"has no value and no default":  parameters(),
		"the template has no such":     parameters("name", "lab1", "other", 1),
		"must be an object with a val": {"name": "lab1"},
		"values from a key vault":      {"name": map[string]any{"reference": map[string]any{"secretName": "x"}}},
	} {
		if _, err := arm.Parse(t.Context(), place, template, bad, known); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
}

// TestSecrets: values of secure parameters and outputs are not shown.
func TestSecrets(t *testing.T) {
	text := `{"parameters": {"open": {"type": "string"}, "hidden": {"type": "secureString"}, "deep": {"type": "secureObject"}},
		"resources": [{"type": "T/a", "name": "n", "properties": {"password": "[parameters('hidden')]"}}],
		"outputs": {"o": {"type": "securestring", "value": "[parameters('hidden')]"}}}`
	given := parameters("open", "seen", "hidden", "s3cret", "deep", map[string]any{"a": "s3cret"})
	tmpl, err := arm.Parse(t.Context(), place, object(t, text), given, known)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	if err := tmpl.Deploy(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if b, _ := json.Marshal(r.made[0].Body); !strings.Contains(string(b), "s3cret") {
		t.Errorf("the resource did not get it: %s", b)
	}
	shown, err := tmpl.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	out, err := tmpl.Outputs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal([]any{shown, out})
	if strings.Contains(string(b), "s3cret") || !strings.Contains(string(b), "seen") || !strings.Contains(string(b), "SecureString") {
		t.Errorf("%s", b)
	}
	_, err = arm.Parse(t.Context(), place, object(t, text), parameters("open", "seen", "hidden", 4711, "deep", map[string]any{}), known)
	if err == nil || strings.Contains(err.Error(), "4711") {
		t.Errorf("%v", err)
	}
}

// TestOrder: dependsOn, reference, nesting and copies.
func TestOrder(t *testing.T) {
	text := `{
		"variables": {"copy": [{"name": "names", "count": 2, "input": "[concat('c', copyIndex('names'))]"}]},
		"resources": [
			{"type": "T/a", "name": "last", "dependsOn": ["clusters"], "properties": {"of": "[reference('first').size]", "names": "[variables('names')]"}},
			{"type": "T/a", "name": "[format('box{0}', copyIndex(1))]", "copy": {"name": "clusters", "count": 2}, "properties": {
				"i": "[copyIndex()]", "copy": [{"name": "disks", "count": 2, "input": {"n": "[copyIndex('disks')]", "of": "[copyIndex('clusters')]"}}]}},
			{"type": "T/a", "name": "first", "properties": {"size": 3}, "resources": [{"type": "b", "name": "child", "properties": {}}]},
			{"type": "T/a", "name": "never", "condition": false}
		],
		"outputs": {"size": {"type": "int", "value": "[reference(resourceId('T/a', 'last')).of]"},
			"full": {"type": "string", "value": "[reference('first', '1', 'Full').name]"},
			"no": {"type": "string", "condition": false, "value": "[reference('never').x]"}}}`
	tmpl, err := arm.Parse(t.Context(), place, object(t, text), nil, known)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	if err := tmpl.Deploy(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range r.made {
		names = append(names, x.Name)
	}
	if diff := cmp.Diff([]string{"box1", "box2", "first", "last", "first/child"}, names); diff != "" {
		t.Error(diff)
	}
	b, _ := json.Marshal(r.made[1].Body)
	if want := `{"properties":{"disks":[{"n":0,"of":1},{"n":1,"of":1}],"i":1}}`; string(b) != want {
		t.Errorf("%s, want %s", b, want)
	}
	out, err := tmpl.Outputs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := json.Marshal(out); string(b) != `{"full":{"type":"String","value":"first"},"size":{"type":"Int","value":3}}` {
		t.Errorf("%s", b)
	}
	if b, _ := json.Marshal(r.made[3].Body); string(b) != `{"properties":{"names":["c0","c1"],"of":3}}` {
		t.Errorf("%s", b)
	}
}

// TestMakeFails: an error when a resource is made names it, and what was made before stays.
func TestMakeFails(t *testing.T) {
	text := `{"resources": [{"type": "T/a", "name": "one"}, {"type": "T/a", "name": "two"}, {"type": "T/a", "name": "three"}]}`
	tmpl, err := arm.Parse(t.Context(), place, object(t, text), nil, known)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{fail: "two"}
	err = tmpl.Deploy(t.Context(), r)
	if err == nil || !strings.Contains(err.Error(), "resources[1] (T/a two): two is taken") || len(r.made) != 1 {
		t.Errorf("%v, made %v", err, r.made)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"resources": [{"type": "T/a", "name": "[concat('a', parameters('x')[0].b)]"}]}`)
	f.Add(`{"variables": {"a": "[if(true(), createArray(1)[0], first(''))]"}, "resources": {}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var m map[string]any
		if json.Unmarshal([]byte(text), &m) != nil {
			return
		}
		tmpl, err := arm.Parse(t.Context(), place, m, nil, known)
		if err == nil {
			_ = tmpl.Deploy(t.Context(), &recorder{})
			_, _ = tmpl.Outputs(t.Context())
		}
	})
}
