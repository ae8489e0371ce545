package mlflow_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// tides is an MLflow model of a few lines of Python.
var tides = map[string]string{
	"MLmodel":    "flavors:\n  python_function:\n    code: code\n    loader_module: tides\n    env: {conda: conda.yaml}\n    data: data\nmodel_uuid: 0123456789abcdef0123456789abcdef\nmlflow_version: 3.17.2\n",
	"conda.yaml": "channels: [conda-forge]\ndependencies:\n- python\n- pip\n- pip:\n  - mlflow-skinny==3.17.2\n  - pandas\n  - numpy\n",
	"data/limit": "2",
	"code/tides.py": `
class Tides:
    def __init__(self, limit):
        self.limit = limit

    def predict(self, data):
        return ["high" if x > self.limit else "low" for x in data["metres"]]

def _load_pyfunc(path):
    with open(path + "/limit") as f:
        return Tides(float(f.read()))
`,
}

// TestServed: an MLflow model answers without a script and an environment: its conda file becomes
// one. /score takes input_data and answers with the bare predictions, /invocations takes MLflow's
// own protocol.
func TestServed(t *testing.T) {
	t.Parallel()
	s := world.Start(t)
	dir := t.TempDir()
	for name, text := range tides {
		path := filepath.Join(dir, "tides", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	berth := func(args ...string) string {
		t.Helper()
		cmd := s.Command(args...)
		cmd.Dir = dir
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("berth %q: %v\n%s\n%s", args, err, out, errs.String())
		}
		return strings.TrimSpace(string(out))
	}
	berth("deploy", "tides/")
	const rows = `{"columns": ["metres"], "data": [[3.1], [1.2]]}`
	if out := berth("endpoint", "test", "tides", "-d", `{"input_data": `+rows+`}`); strings.Join(strings.Fields(out), "") != `["high","low"]` {
		t.Errorf("/score: %s", out)
	}
	key := berth("online-endpoint", "get-credentials", "-n", "tides", "--query", "primaryKey", "-o", "tsv")
	uri := berth("online-endpoint", "show", "-n", "tides", "--query", "scoring_uri", "-o", "tsv")
	pem, err := os.ReadFile(s.CABundle)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), "POST", strings.TrimSuffix(uri, "/score")+"/invocations", strings.NewReader(`{"dataframe_split": `+rows+`}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || strings.Join(strings.Fields(string(body)), "") != `{"predictions":["high","low"]}` {
		t.Errorf("/invocations: %s %s %v", res.Status, body, err)
	}
}
