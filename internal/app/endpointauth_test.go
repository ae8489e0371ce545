package app_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEndpointAuthModes: an endpoint with tokens takes its own tokens and no keys or tokens of
// users; one with users' tokens takes those and no others.
func TestEndpointAuthModes(t *testing.T) {
	e := startEndpoint(t, start(t, shortHome(t)))
	codeID := e.code("c", pid)
	own := map[string]string{}
	for name, mode := range map[string]string{"tok": "AMLToken", "usr": "AADToken"} {
		at := e.ws + "/onlineEndpoints/" + name
		if code, m := e.do("PUT", at, map[string]any{"location": "local", "properties": map[string]any{"authMode": mode}}); code != http.StatusCreated {
			t.Fatal(code, m)
		}
		code, m := e.do("PUT", at+"/deployments/blue", map[string]any{"location": "local", "properties": map[string]any{
			"codeConfiguration": map[string]any{"codeId": codeID, "scoringScript": "score.py"}, "requestSettings": map[string]any{"requestTimeout": "PT60S", "maxQueueWait": "PT60S"},
		}})
		if code != http.StatusCreated {
			t.Fatal(code, m)
		}
	}
	code, m := e.do("POST", e.ws+"/onlineEndpoints/tok/token", map[string]any{})
	own["tok"], _ = m["accessToken"].(string)
	if code != http.StatusOK || own["tok"] == "" {
		t.Fatal(code, m)
	}
	admin, err := os.ReadFile(filepath.Join(e.home, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	own["usr"] = strings.TrimSpace(string(admin))
	if code, m := e.do("POST", e.ws+"/onlineEndpoints/tok/listKeys", map[string]any{}); code/100 == 2 {
		t.Errorf("an endpoint with tokens has keys: %v", m)
	}
	for name := range own {
		uri := strings.Replace(e.uri, "/e/score", "/"+name+"/score", 1)
		for whose, bearer := range map[string]string{"tok": own["tok"], "usr": own["usr"], "key": e.key, "none": ""} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, uri, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+bearer)
			req.Header.Set("Azureml-Model-Deployment", "blue")
			resp, err := e.remote.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			want := http.StatusUnauthorized
			if whose == name {
				want = http.StatusOK
			}
			if resp.StatusCode != want {
				t.Errorf("endpoint %s with the credential of %s: %d, want %d", name, whose, resp.StatusCode, want)
			}
		}
	}
	for _, name := range []string{"tok", "usr", "e"} {
		if code, m := e.do("DELETE", e.ws+"/onlineEndpoints/"+name, nil); code/100 != 2 {
			t.Error(code, m)
		}
	}
}
