package instance_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// TestNotebookSubmits: in a kernel and in a terminal of an instance the cells of docs/clients.md
// and `berth run` submit jobs as the instance's owner with nothing set, and what they do that with
// is of no use to anybody else.
func TestNotebookSubmits(t *testing.T) {
	t.Parallel()
	p := &place{Server: world.Start(t), t: t, name: "lab"}
	token := func(user string) string {
		var v struct{ Token string }
		if err := json.Unmarshal([]byte(p.run("token", "create", user, "-o", "json")), &v); err != nil {
			t.Fatal(err)
		}
		return v.Token
	}
	ann, bob := token("ann"), token("bob")
	as := func(token string, args ...string) *exec.Cmd {
		cmd := p.Command(args...)
		cmd.Env = append(cmd.Env, "BERTH_URL="+p.URL, "BERTH_TOKEN="+token, "BERTH_CA="+p.CABundle)
		return cmd
	}
	file := filepath.Join(t.TempDir(), "ci.yml")
	if err := os.WriteFile(file, []byte("name: lab\ntype: computeinstance\nsize: Standard_DS2_v2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := as(ann, "compute", "create", "-f", file, "-o", "none").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, p.logs())
	}
	t.Cleanup(func() { _ = p.Command("compute", "delete", "-n", p.name, "--yes").Run() })

	t.Run("terminal", func(t *testing.T) {
		out, err := as(ann, "ssh", "lab", "--", `berth run --no-code --environment host -- 'echo ran for the terminal' && berth job list -o json --query '[].creation_context.created_by'`).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "ran for the terminal") || !strings.Contains(string(out), `"ann"`) {
			t.Errorf("%v\n%s", err, out)
		}
		login := as(ann, "ssh", "lab")
		login.Stdin = strings.NewReader("command -v python && berth job list -o json --query 'length(@)'\n")
		if out, err := login.CombinedOutput(); err != nil || !strings.Contains(string(out), "/lab/env/bin/python\n1\n") {
			t.Errorf("in a login shell: %v\n%s", err, out)
		}
		out, err = as(ann, "ssh", "lab", "--", "berth token list").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "only an administrator") {
			t.Errorf("more than a user's power: %v\n%s", err, out)
		}
	})
	t.Run("kernel", func(t *testing.T) { docsInKernel(t, p, ann) })
	t.Run("others", func(t *testing.T) {
		secret, err := as(ann, "ssh", "lab", "--", "printf %s $BERTH_TOKEN").Output()
		if err != nil || !strings.HasPrefix(string(secret), "bi_") {
			t.Fatalf("%v %.3s", err, secret)
		}
		theft := `export BERTH_URL=` + p.URL + ` BERTH_CA=` + p.CABundle + ` BERTH_TOKEN=` + string(secret) + `
			` + p.Bin + ` job list 2>&1
			curl -sk -H "X-IDENTITY-HEADER: $BERTH_TOKEN" $BERTH_URL/msi/token; true`
		out, err := as(bob, "run", "--no-code", "--environment", "host", "--", theft).CombinedOutput()
		if err != nil || strings.Count(string(out), "the token of an instance is for programs on it") != 2 || strings.Contains(string(out), "access_token") {
			t.Errorf("bob's job with ann's token: %v\n%s", err, out)
		}
		sockets, _ := filepath.Glob(filepath.Join(p.Home, "instances", "*", "lab", "run", "*.sock"))
		if len(sockets) != 2 {
			t.Fatalf("sockets %v", sockets)
		}
		knock := `for s in ` + strings.Join(sockets, " ") + `; do curl -s -m 10 -o /dev/null -w "answer %{http_code}\n" --unix-socket $s http://x` + p.app() + `/jupyter/api/kernels; done; true`
		out, err = as(bob, "run", "--no-code", "--environment", "host", "--", knock).CombinedOutput()
		if err != nil || strings.Contains(string(out), "answer 200") || !strings.Contains(string(out), "answer 403") && !strings.Contains(string(out), "answer 401") {
			t.Errorf("bob's job at the sockets of ann's instance: %v\n%s", err, out)
		}
		// A process that is in no job may pass it on, as a proxy does, until the instance stops.
		if res, b := p.do("GET", p.path(), string(secret), nil); res.StatusCode != http.StatusOK {
			t.Errorf("%s %s", res.Status, b)
		}
		if out, err := as(ann, "compute", "stop", "-n", "lab").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if res, b := p.do("GET", p.path(), string(secret), nil); res.StatusCode != http.StatusUnauthorized || !strings.Contains(b, "stopped or deleted") {
			t.Errorf("after the stop: %s %s", res.Status, b)
		}
	})
}

// docsInKernel executes the Python of docs/clients.md, as it stands there, in a kernel of the
// instance.
func docsInKernel(t *testing.T, p *place, token string) {
	page, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	cells := []string{"%pip install -q --cache-dir " + filepath.Join(cache, "berth-e2e", "pip") + " azure-ai-ml==1.35.2 azure-identity==1.27.0 six==1.17.0"}
	for part := range strings.SplitSeq(string(page), "```python\n") {
		if code, _, ok := strings.Cut(part, "\n```"); ok && (strings.Contains(code, "MLClient(Default") || strings.Contains(code, "azure-env")) {
			cells = append(cells, code)
		}
	}
	if len(cells) != 3 {
		t.Fatalf("%d cells", len(cells))
	}
	cells = append(cells, `done = client.jobs.get(job.name)
print("it is", "Completed" if done.status == "Completed" else done.status, "by", done.creation_context.created_by)
print("from_config:", MLClient.from_config(DefaultAzureCredential()).workspace_name)
# The SDK streams no log of a job that ended before it looked.
!berth logs {job.name}`)
	type cell struct {
		Type     string         `json:"cell_type"`
		ID       string         `json:"id"`
		Metadata map[string]any `json:"metadata"`
		Count    any            `json:"execution_count"`
		Outputs  []any          `json:"outputs"`
		Source   string         `json:"source"`
	}
	book := map[string]any{"nbformat": 4, "nbformat_minor": 5, "metadata": map[string]any{}}
	var list []cell
	for i, c := range cells {
		list = append(list, cell{"code", string(rune('a' + i)), map[string]any{}, nil, []any{}, c})
	}
	book["cells"] = list
	b, err := json.Marshal(book)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "docs.ipynb")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	python := world.Python(t, "requests==2.34.2", "websocket-client==1.9.2")
	cmd := exec.Command(python, "../../examples/notebook/execute.py", p.name, file, filepath.Join(t.TempDir(), "out.ipynb"))
	cmd.Env = append(p.Command().Env, "BERTH="+p.Bin, "BERTH_URL="+p.URL, "BERTH_TOKEN="+token, "BERTH_CA="+p.CABundle)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, p.logs())
	}
	for _, want := range []string{"hello", "it is Completed by ann", "from_config: default", "executed 4 cells"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the notebook does not say %q:\n%s", want, out)
		}
	}
}
