package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestErrorsForAzureClients: Azure's clients, which raise AttributeError for errors that are JSON
// but not objects, get objects. Everybody else gets what the model said.
func TestErrorsForAzureClients(t *testing.T) {
	status := http.StatusBadRequest
	worker := httptest.NewServer(prover("right", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		w.Write(b)
	}))
	defer worker.Close()
	srv := httptest.NewServer(through(t, worker.URL, nil))
	defer srv.Close()
	ask := func(agent, body string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/score", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("User-Agent", agent)
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(b)
	}
	const agent = "azure-ai-ml/1.35.2 azsdk-python-core/1.36"
	for body, says := range map[string]string{`["a", "b"]`: `["a", "b"]`, `"no such column"`: "no such column", " 7\n": "7", "null": "null", `"\n"`: "\n"} {
		resp, got := ask(agent, body)
		var v struct {
			Error   struct{ Code, Message string }
			Message string
		}
		if err := json.Unmarshal([]byte(got), &v); err != nil || v.Message != says || v.Error.Message != says || v.Error.Code == "" {
			t.Errorf("%q: %s %v", body, got, err)
		}
		if resp.StatusCode != http.StatusFailedDependency || resp.Header.Get("Ms-Azureml-Model-Error-Statuscode") != "400" {
			t.Errorf("%q: %d %v", body, resp.StatusCode, resp.Header)
		}
		if _, got := ask("curl/8", body); got != body {
			t.Errorf("others get %q for %q", got, body)
		}
	}
	for _, body := range []string{`{"message": "as it is"}`, "no JSON", "", "[1"} {
		if _, got := ask(agent, body); got != body {
			t.Errorf("%q for %q", got, body)
		}
	}
	status = http.StatusOK
	if _, got := ask(agent, "[1]"); got != "[1]" {
		t.Errorf("an answer that is no error: %q", got)
	}
}
