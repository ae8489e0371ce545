package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestTokens(t *testing.T) {
	x := open(t)
	x.as("", "GET", x.ws+"/jobs", nil).want(401)
	x.as("nonsense", "GET", x.ws+"/jobs", nil).want(401)
	secret := x.do("POST", "/tokens", `{"name":"ann","role":"user"}`).want(201).at("token").(string)
	x.as(secret, "GET", x.ws+"/jobs", nil).want(200)
	x.as(secret, "GET", "/tokens", nil).want(403)
	x.do("POST", "/tokens", `{"name":"ann"}`).want(409)
	x.do("POST", "/tokens", `{"name":"bob","role":"king"}`).want(400)
	x.do("POST", "/tokens", `{"name":"old","expires":"2020-01-01T00:00:00Z"}`).want(201)
	// The identity endpoint turns the token into a JWT for any audience.
	a := x.as("", "GET", "/msi/token?api-version=2019-08-01&resource=https://ml.azure.test", nil, "X-IDENTITY-HEADER", secret).want(200)
	jwt := a.at("access_token").(string)
	x.as(jwt, "GET", x.ws+"/jobs", nil).want(200)
	x.as(jwt[:len(jwt)-2]+"xx", "GET", x.ws+"/jobs", nil).want(401)
	x.as("", "GET", "/msi/token?resource=x", nil, "X-IDENTITY-HEADER", "wrong").want(401)
	x.as("", "GET", "/msi/token?resource=x", nil).want(401)
	if list := x.do("GET", "/tokens", nil).want(200); bytes.Contains(list.raw, []byte(secret)) {
		t.Error("a token's secret is in the list")
	}
	x.do("DELETE", "/tokens/ann", nil).want(204)
	x.as(secret, "GET", x.ws+"/jobs", nil).want(401)
	x.as(jwt, "GET", x.ws+"/jobs", nil).want(401)
	// A task's token opens nothing but its task.
	task := x.auth.Keys.TaskToken("j.1", time.Now().Add(time.Hour))
	x.as(task, "GET", x.ws+"/jobs", nil).want(403)
	x.as(task, "POST", "/runner/v1/tasks/other.1/log?offset=0", "x").want(403)
	x.as("", "GET", "/msi/token?resource=x", nil, "X-IDENTITY-HEADER", task).want(403)
	x.as(task, "GET", "/history/v1.0"+x.ws+"/runs/j/details", nil).want(403)
}

// TestIdentityOfTasks: a process of a task gets no access tokens, whatever else it sends.
func TestIdentityOfTasks(t *testing.T) {
	x := open(t)
	const vm, app, oauth = "/metadata/identity/oauth2/token?resource=x", "/msi/token?resource=x", "/common/oauth2/v2.0/token"
	form := "grant_type=client_credentials&scope=x&client_secret=" + x.admin
	for _, more := range [][]string{nil, {"secret", "bi_x"}, {"X-IDENTITY-HEADER", "bi_x"}} {
		from := append([]string{testTask, "1"}, more...)
		x.as(x.admin, "GET", vm, nil, from...).want(403)
		x.as("", "POST", oauth, form, append(from, "Content-Type", "application/x-www-form-urlencoded")...).want(403)
	}
	x.as("", "GET", app, nil, testTask, "1", "X-IDENTITY-HEADER", x.admin).want(403)
	x.as("", "GET", app, nil, testTask, "1", "X-IDENTITY-HEADER", x.admin, "secret", "bi_x").want(403)
	x.as("", "GET", app, nil, testTask, "1", "X-IDENTITY-HEADER", "bi_x").want(401) // it is looked at, and not valid
	x.as(x.admin, "GET", vm, nil).want(200)
	x.as("", "POST", oauth, form, "Content-Type", "application/x-www-form-urlencoded").want(200)
}

func TestBootstrap(t *testing.T) {
	x := open(t)
	var list []map[string]any
	a := x.as("", "GET", "/metadata/endpoints?api-version=2019-05-01", nil).want(200)
	if err := json.Unmarshal(a.raw, &list); err != nil || list[0]["resourceManager"] != "https://127.0.0.1:8443/" {
		t.Errorf("%v %s", err, a.raw)
	}
	x.as("", "GET", "/metadata/endpoints?api-version=2022-09-01", nil).want(200).is("name", "Berth").is("suffixes.storage", "berth/")
	x.as("", "GET", "/discovery", nil).want(200).is("api", "https://127.0.0.1:8443")
	x.do("GET", "/subscriptions?api-version=2022-12-01", nil).want(200).is("value.0.state", "Enabled")
	x.do("GET", x.ws, nil).want(200).is("properties.discoveryUrl", "https://127.0.0.1:8443/discovery").is("name", "lab")
	x.do("GET", strings.Replace(x.ws, "lab", "nope", 1), nil).want(404).says("nope")
	x.do("GET", x.ws+"/computes/local", nil).want(200)
	x.do("DELETE", x.ws+"/computes/local", nil).want(409)
	x.do("GET", "/nothing/here", nil).want(404)
}

func TestWorkspaceByTemplate(t *testing.T) {
	x := open(t)
	dep := "/subscriptions/sub/resourcegroups/Group/providers/Microsoft.Resources/deployments/d1"
	tmpl := `{"properties": {"parameters": {"workspaceName": {"value": "made"}, "description": {"value": "mine"}, "vnet": {"value": ""}}, "template": {
		"parameters": {"workspaceName": {"type": "string"}, "description": {"type": "string"}, "vnet": {"type": "string"}, "kind": {"type": "string", "defaultValue": "default"}},
		"resources": [
			{"condition": "[not(empty(parameters('vnet')))]", "type": "Microsoft.Network/virtualNetworks", "name": "[parameters('vnet')]"},
			{"type": "Microsoft.MachineLearningServices/workspaces", "name": "[parameters('workspaceName')]", "kind": "[parameters('kind')]",
				"properties": {"description": "[parameters('description')]", "imageBuildCompute": "", "encryption": {"keyVaultProperties": {"id": ""}}}}
		]}}}`
	a := x.do("PUT", dep, tmpl).want(201)
	if a.header.Get("Azure-AsyncOperation") == "" || a.header.Get("Retry-After") != "1" {
		t.Errorf("headers %v", a.header)
	}
	op := strings.TrimPrefix(a.header.Get("Azure-AsyncOperation"), "https://127.0.0.1:8443")
	x.do("GET", op, nil).want(200).is("status", "Succeeded")
	x.do("GET", dep, nil).want(200).is("properties.provisioningState", "Succeeded")
	made := strings.Replace(x.ws, "lab", "made", 1)
	x.do("GET", made, nil).want(200).is("properties.description", "mine")
	x.do("GET", made+"/datastores?isDefault=true", nil).want(200).is("value.0.name", "workspaceblobstore").is("value.1", nil)
	x.do("DELETE", made, nil).want(200)
	x.do("DELETE", x.ws, nil).want(409)
	x.do("PUT", "/subscriptions/sub/resourcegroups/rg2", `{"location":"x"}`).want(201)
	x.do("GET", "/subscriptions/sub/resourcegroups/rg2", nil).want(200).is("location", "x")
}

func TestEvents(t *testing.T) {
	x := open(t)
	for _, n := range []string{"a", "b"} {
		x.do("PUT", x.ws+"/jobs/"+n, props("jobType", "Command", "command", "x")).want(201)
	}
	x.do("POST", x.ws+"/jobs/a/cancel", nil).want(202)
	x.do("GET", x.ws+"/jobs/A/events", nil).want(200).is("value.0.type", "job.created").is("value.1.type", "job.cancel").is("value.2", nil)
	x.do("GET", x.ws+"/jobs/none/events", nil).want(404)
	x.do("GET", x.ws+"/events?from=x", nil).want(400)
	// A stream goes on from a revision; the recorder ends it with the request's context.
	ctx, cancel := context.WithCancel(t.Context())
	req := httptest.NewRequestWithContext(ctx, "GET", x.ws+"/jobs/a/events", nil)
	req.Header.Set("Authorization", "Bearer "+x.admin)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", fmt.Sprint(int64(x.do("GET", x.ws+"/jobs/a/events", nil).at("value.0.rev").(float64))))
	w := &streamed{ResponseRecorder: httptest.NewRecorder(), want: "event: job.changed", found: cancel}
	done := make(chan struct{})
	go func() {
		x.h.ServeHTTP(w, req)
		close(done)
	}()
	x.do("PATCH", "/history/v1.0"+x.ws+"/experiments/Default/runs/b", `{"hidden":true}`).want(200)
	x.do("PATCH", "/history/v1.0"+x.ws+"/experiments/Default/runs/a", `{"hidden":true}`).want(200)
	<-done
	got := w.Body.String()
	if strings.Contains(got, "job.created") || !strings.Contains(got, "event: job.cancel") || strings.Contains(got, "jobs/b") {
		t.Errorf("stream: %s", got)
	}
}

// streamed ends a stream once it has said something.
type streamed struct {
	*httptest.ResponseRecorder
	want  string
	found func()
}

func (s *streamed) Write(p []byte) (int, error) {
	n, err := s.ResponseRecorder.Write(p)
	if strings.Contains(s.Body.String(), s.want) {
		s.found()
	}
	return n, err
}
