package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/api"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

// template is the body of a deployment; lines that are comments are left out, as clients do.
func template(t *testing.T, name, parameters string) string {
	t.Helper()
	b, err := os.ReadFile("../../examples/template/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(strings.TrimSpace(line), "//") {
			text.WriteString(line)
		}
	}
	return `{"properties": {"mode": "Incremental", "template": ` + text.String() + `, "parameters": ` + parameters + `}}`
}

// TestTemplates deploys the examples, which are made like Azure's quickstarts.
func TestTemplates(t *testing.T) {
	x := open(t)
	sub := x.ws[:strings.Index(x.ws, "/resourceGroups/")]
	lab := sub + "/resourceGroups/lab"
	at := lab + "/providers/Microsoft.Resources/deployments/"
	x.do("PUT", lab, `{"location": "westeurope"}`).want(201)

	body := template(t, "workspace.json", `{"name": {"value": "lab1"}}`)
	x.do("POST", at+"first/validate", body).want(200).is("properties.provisioningState", "Succeeded")
	x.do("GET", at+"first", nil).want(404).says("there is no deployment first")
	a := x.do("PUT", at+"first", body).want(201)
	if a.header.Get("Azure-AsyncOperation") == "" {
		t.Error("no operation to poll")
	}
	op := strings.TrimPrefix(a.header.Get("Azure-AsyncOperation"), "https://127.0.0.1:8443")
	x.do("GET", op, nil).want(200).is("status", "Succeeded")
	ws := lab + "/providers/Microsoft.MachineLearningServices/workspaces/mlw-lab1-dev"
	x.do("GET", at+"first", nil).want(200).is("properties.outputs.workspaceId.value", ws).is("properties.outputResources.0.id", ws).
		is("properties.outputResources.1", nil).is("properties.parameters.environment.value", "dev").
		is("properties.berth.notes.1", "Microsoft.KeyVault/vaults kv-lab1-dev was accepted and not made: this server needs no key vault")
	x.do("GET", ws, nil).want(200).is("location", "westeurope").is("properties.keyVault", lab+"/providers/Microsoft.KeyVault/vaults/kv-lab1-dev")
	x.do("GET", at+"first/operations", nil).want(200).is("value.0.properties.provisioningState", "Succeeded")
	x.do("PUT", at+"first", body).want(201) // again: nothing changes

	const password = "s3cret-Passw0rd"
	cluster := template(t, "cluster.json", `{"workspaceName": {"value": "mlw-lab1-dev"}, "clusterName": {"value": "cpu"}, "adminUserPassword": {"value": "`+password+`"}}`)
	x.do("PUT", at+"second", cluster).want(201)
	got := x.do("GET", at+"second", nil).want(200).is("properties.provisioningState", "Running").is("properties.outputs.nodes.value", 2).
		is("properties.parameters.adminUserPassword.type", "SecureString")
	for _, a := range []answer{got, x.do("GET", at, nil).want(200), x.do("GET", ws+"/computes/cpu", nil).want(200)} {
		if bytes.Contains(a.raw, []byte(password)) {
			t.Errorf("the password is shown: %s", a.raw)
		}
	}
	x.do("GET", ws+"/computes/cpu", nil).want(200).is("properties.properties.vmSize", "Standard_DS2_v2").is("properties.properties.scaleSettings.maxNodeCount", 2)
	x.do("DELETE", at+"second", nil).want(204)
	x.do("GET", ws+"/computes/cpu", nil).want(200)
}

// TestTemplatesRefused: nothing is made by a template with an error; a resource that cannot be made
// is the deployment's failure.
func TestTemplatesRefused(t *testing.T) {
	x := open(t)
	group := x.ws[:strings.Index(x.ws, "/providers/")]
	name := x.ws[strings.LastIndex(x.ws, "/")+1:]
	at := group + "/providers/Microsoft.Resources/deployments/d"
	body := func(resources string) string {
		return `{"properties": {"template": {"resources": [` + resources + `]}}}`
	}
	data := `{"type": "Microsoft.MachineLearningServices/workspaces/data/versions", "name": "` + name + `/set/1", "properties": {"dataType": "uri_file", "dataUri": "https://x/y"}}`
	for text, want := range map[string]string{
		body(data + `, {"type": "Microsoft.Compute/virtualMachines", "name": "v"}`):                     "resources[1]: this server has no resources of type Microsoft.Compute/virtualMachines",
		body(data + `, {"type": "Microsoft.KeyVault/vaults", "name": "[shout('x')]"}`):                  "resources[1].name: there is no function shout",
		body(`{"type": "Microsoft.MachineLearningServices/workspaces/pets", "name": "` + name + `/x"}`): "no resources of type",
		`{"properties": {"templateLink": {"uri": "https://x/y.json"}}}`:                                 "fetches no templates",
		`{"properties": {"mode": "Complete", "template": {"resources": []}}}`:                           "Complete is not supported",
		`{"properties": {}}`: "properties.template is missing",
	} {
		for _, call := range []struct{ method, path string }{{"PUT", at}, {"POST", at + "/validate"}} {
			x.do(call.method, call.path, text).want(400).says(want)
		}
	}
	x.do("GET", x.ws+"/data/set/versions/1", nil).want(404)
	x.do("POST", at+"/whatIf", body(data)).want(400).says("what-if is not supported")

	bad := `{"type": "Microsoft.MachineLearningServices/workspaces/computes", "name": "` + name + `/c", "properties": {"computeType": "AmlCompute", "properties": {"vmSize": "none"}}}`
	a := x.do("PUT", at, body(data+", "+bad)).want(201).is("properties.provisioningState", "Failed")
	if want := "resources[1] (Microsoft.MachineLearningServices/workspaces/computes " + name + "/c): "; !bytes.Contains(a.raw, []byte(want)) {
		t.Errorf("%s does not say %q", a.raw, want)
	}
	x.do("GET", strings.TrimPrefix(a.header.Get("Azure-AsyncOperation"), "https://127.0.0.1:8443"), nil).want(200).is("status", "Failed")
	x.do("GET", x.ws+"/data/set/versions/1", nil).want(200)

	// What is no resource is not referred to.
	logs := `{"type": "Microsoft.KeyVault/vaults", "name": "kv", "properties": {"x": "[reference('` + x.ws + `/jobs/j/logs/std_log.txt')]"}}`
	a = x.do("PUT", at, body(logs)).want(201).is("properties.provisioningState", "Failed")
	if !bytes.Contains(a.raw, []byte("no resources of type Microsoft.MachineLearningServices/workspaces/jobs/logs")) {
		t.Errorf("%s", a.raw)
	}

	// The value of a secure parameter is in no message.
	const secret = "Hunter2-in-a-name"
	named := `{"properties": {"parameters": {"key": {"value": "` + secret + `"}}, "template": {"parameters": {"key": {"type": "securestring"}}, "resources": [
		{"type": "Microsoft.MachineLearningServices/workspaces/computes", "name": "[concat('` + name + `/', parameters('key'))]", "properties": {"computeType": "AmlCompute", "properties": {"vmSize": "none"}}}]}}}`
	for _, a := range []answer{x.do("PUT", at, named).want(201).is("properties.provisioningState", "Failed"), x.do("GET", at, nil).want(200)} {
		if bytes.Contains(bytes.ToLower(a.raw), bytes.ToLower([]byte(secret))) || !bytes.Contains(a.raw, []byte("(secure)")) {
			t.Errorf("%s", a.raw)
		}
	}

	// A template has its sender's rights, and its record stays theirs.
	ann, bob := x.token("ann", auth.User), x.token("bob", auth.User)
	a = x.as(ann, "PUT", at+"ann", body(`{"type": "Microsoft.MachineLearningServices/workspaces", "name": "hers", "properties": {}}`)).want(201).
		is("properties.provisioningState", "Failed")
	if !bytes.Contains(a.raw, []byte("only an administrator may create or change workspaces")) {
		t.Errorf("%s", a.raw)
	}
	x.as(bob, "PUT", at+"ann", body(data)).want(403).says("was made by ann")
	x.as(bob, "DELETE", at+"ann", nil).want(403)
	x.as(ann, "DELETE", at+"ann", nil).want(204)
}

// stopper is a body after which the server stops.
type stopper struct {
	io.Reader
	stop func()
}

func (s stopper) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil {
		s.stop()
	}
	return n, err
}

// TestTemplateBrokenOff: a deployment that did not come to its end is not one that succeeded.
func TestTemplateBrokenOff(t *testing.T) {
	x := open(t)
	group := x.ws[:strings.Index(x.ws, "/providers/")]
	name := x.ws[strings.LastIndex(x.ws, "/")+1:]
	at := group + "/providers/Microsoft.Resources/deployments/"
	x.do("PUT", at+"d", `{"properties": {"template": {"resources": []}}}`).want(201).is("properties.provisioningState", "Succeeded")

	var kept *store.Doc
	record := func() map[string]any {
		var body map[string]any
		if err := x.db.View(t.Context(), func(tx *store.Tx) error {
			docs, err := tx.List(store.Query{Kind: "deployments"})
			if err != nil || len(docs) != 1 {
				return fmt.Errorf("%d records: %w", len(docs), err)
			}
			kept = docs[0]
			return json.Unmarshal(kept.Body, &body)
		}); err != nil {
			t.Fatal(err)
		}
		return body
	}
	// As a server that is killed leaves it.
	body := record()
	body["running"] = true
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	kept.Body = raw
	if err := x.db.Update(t.Context(), func(tx *store.Tx) error { return tx.Save(kept) }); err != nil {
		t.Fatal(err)
	}
	const why = "the server stopped before the deployment was done; what it had made by then is there. Deploy the template again"
	x.do("GET", at+"d", nil).want(200).is("properties.provisioningState", "Failed").is("properties.error.message", why)
	x.do("GET", at, nil).want(200).is("value.0.properties.provisioningState", "Failed").is("value.0.properties.error.message", why)

	// The server stops once the template was read.
	text := `{"properties": {"template": {"resources": [{"type": "Microsoft.MachineLearningServices/workspaces/data/versions", "name": "` + name +
		`/set/1", "properties": {"dataType": "uri_file", "dataUri": "https://x/y"}}]}}}`
	ended, end := context.WithCancel(t.Context())
	end()
	r := httptest.NewRequestWithContext(t.Context(), "PUT", at+"d", stopper{strings.NewReader(text), func() { x.h.(*api.Server).Stop(ended) }})
	r.Header.Set("Authorization", "Bearer "+x.admin)
	w := httptest.NewRecorder()
	x.h.ServeHTTP(w, r)
	if w.Code != 503 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if got := record(); got["running"] != nil || !strings.Contains(fmt.Sprint(got["error"]), "the server is stopping") || got["errorCode"] != "unavailable" {
		t.Errorf("%v", got)
	}
}
