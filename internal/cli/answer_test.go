package cli_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/cli"
)

// TestOddAnswers: whatever JSON a server answers with, a command ends with a result or a message,
// and does not panic.
func TestOddAnswers(t *testing.T) {
	answer := ""
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer))
	}))
	defer srv.Close()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"BERTH_URL": srv.URL, "BERTH_TOKEN": "x", "BERTH_CA": ca, "BERTH_HOME": dir,
		"BERTH_WORKSPACE": "w", "BERTH_RESOURCE_GROUP": "g", "BERTH_SUBSCRIPTION": "s",
	} {
		t.Setenv(k, v)
	}
	files := map[string]string{
		"compute": "name: x\ntype: amlcompute\nsize: Standard_DS3_v2\n", "environment": "name: x\nimage: ubuntu\n",
		"data": "name: x\npath: https://x/y\ntype: uri_file\n", "model": "name: x\npath: azureml://datastores/d/paths/x\n",
		"component": "name: x\ntype: command\ncommand: echo\nenvironment: azureml:e:1\n", "job": "command: echo\nenvironment: azureml:e:1\n",
		"datastore": "name: x\ntype: azure_blob\naccount_name: a\ncontainer_name: c\n", "workspace": "name: x\n",
		"connection": "name: x\ntype: git\ntarget: https://x\ncredentials:\n  type: pat\n  pat: x\n",
	}
	var commands []string
	for noun, text := range files {
		file := filepath.Join(dir, noun+".yml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		commands = append(commands, noun+" create --file "+file)
		for _, verb := range []string{"show -n x", "list", "list -o table", "update -n x --set tags.a=b"} {
			commands = append(commands, noun+" "+verb)
		}
	}
	for _, noun := range []string{"job", "environment", "data", "model", "component"} {
		commands = append(commands, noun+" archive -n x", noun+" restore -n x")
	}
	for _, noun := range []string{"environment", "data", "model", "component"} {
		commands = append(commands, noun+" list -n x", noun+" show -n x -v 1")
	}
	for _, noun := range []string{"job", "compute", "datastore", "connection", "workspace"} {
		commands = append(commands, noun+" delete -n x --yes --no-wait")
	}
	commands = append(commands,
		"job cancel -n x", "job show-services -n x", "job download -n x --all -p "+dir, "job download -n x --output-name o -p "+dir, "data download -n x -p "+dir,
		"job list -p x", "connection show -n x --populate-secrets",
		"compute list-nodes -n x", "compute list-sizes", "compute list-usage", "compute open -n x", "compute evict -n x", "compute start -n x --no-wait",
		"workspace list-keys", "workspace diagnose", "ps", "ps -a -o json", "explain x", "explain compute/x", "events x", "logs x", "cost", "advise", "advise --job x",
		"budget list", "budget set --amount 3", "quota list", "quota request --vcpus 3 --user u", "quota approve x", "token list", "token create x", "status", "status -o json",
		"plan -f "+filepath.Join(dir, "job.yml"), "run --no-wait --no-code -- true", "azure-env", "azure-env -o json",
	)
	quiet, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Close()
	for _, answer = range []string{`{}`, `null`, `{"value":[null],"properties":[],"tags":7}`} {
		for _, words := range commands {
			run(t, answer, append([]string{"berth"}, strings.Fields(words)...), quiet)
		}
	}
}

// run runs a command in this process, with its output thrown away.
func run(t *testing.T, answer string, args []string, quiet *os.File) {
	out, errs := os.Stdout, os.Stderr
	defer func() {
		os.Stdout, os.Stderr = out, errs
		if p := recover(); p != nil {
			t.Errorf("%s, answered %s: %v", strings.Join(args, " "), answer, p)
		}
	}()
	os.Stdout, os.Stderr = quiet, quiet
	cli.Main(args)
}
