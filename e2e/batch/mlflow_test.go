package batch_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// user is somebody at a shell.
type user struct {
	t   *testing.T
	s   *world.Server
	dir string
}

func newUser(t *testing.T) *user { return &user{t, world.Start(t), t.TempDir()} }

func (u *user) berth(args ...string) string {
	u.t.Helper()
	out, err := u.try(args...)
	if err != nil {
		u.t.Fatalf("berth %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

func (u *user) try(args ...string) (string, error) {
	cmd := u.s.Command(args...)
	cmd.Dir = u.dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (u *user) write(name, text string) {
	u.t.Helper()
	path := filepath.Join(u.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		u.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		u.t.Fatal(err)
	}
}

// invoke begins a job of an endpoint and waits for its end.
func (u *user) invoke(args ...string) (job, status, reason string) {
	u.t.Helper()
	job = u.berth(append([]string{"batch-endpoint", "invoke", "--query", "name", "-o", "tsv"}, args...)...)
	_, _ = u.try("job", "stream", "-n", job) // a job that failed is an error of the command
	var v struct {
		Status string
		Berth  struct{ Reason string }
	}
	if err := json.Unmarshal([]byte(u.berth("job", "show", "-n", job, "-o", "json")), &v); err != nil {
		u.t.Fatal(err)
	}
	out, _ := u.try("explain", job)
	return job, v.Status, out
}

// result is a file of an output of a job.
func (u *user) result(job, output, file string) []byte {
	u.t.Helper()
	to := filepath.Join(u.dir, "got-"+job)
	u.berth("job", "download", "-n", job, "--output-name", output+"="+to)
	b, err := os.ReadFile(filepath.Join(to, file))
	if err != nil {
		u.t.Fatal(err)
	}
	return b
}

// TestMLflow: a model that scikit-learn trained and mlflow saved is deployed without a script and
// without an environment, and scores files of several formats. Files that it cannot read count as
// failed, and the others are in a CSV file that any reader takes.
func TestMLflow(t *testing.T) {
	python := world.Python(t, "mlflow==3.17.2", "lightgbm==4.6.0")
	u := newUser(t)
	model, data := filepath.Join(u.dir, "model"), filepath.Join(u.dir, "data")
	cmd := exec.Command(python, "train.py", model, data)
	cmd.Env = append(os.Environ(), "MLFLOW_DISABLE_TELEMETRY=true", "GIT_PYTHON_REFRESH=quiet")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	right := strings.Fields(string(out))

	u.berth("model", "create", "-n", "iris", "-v", "1", "-t", "mlflow_model", "-p", model, "-o", "none")
	u.berth("batch-endpoint", "create", "-n", "irises", "-o", "none")
	const deployment = "name: %s\nendpoint_name: irises\ntype: model\nmodel: azureml:iris:1\ncompute: local\nsettings:\n  mini_batch_size: 1\n  max_concurrency_per_instance: 2\n" +
		"  retry_settings: {max_retries: 0, timeout: 300}\n  error_threshold: %d\n  output_action: %s\n  output_file_name: irises.csv\n"
	u.write("rows.yml", fmt.Sprintf(deployment, "rows", 2, "append_row"))
	u.write("strict.yml", fmt.Sprintf(deployment, "strict", 1, "append_row"))
	u.write("summary.yml", fmt.Sprintf(deployment, "summary", -1, "summary_only"))
	u.berth("batch-deployment", "create", "-f", "rows.yml", "--set-default", "-o", "none")
	u.berth("batch-deployment", "create", "-f", "strict.yml", "-o", "none")
	u.berth("batch-deployment", "create", "-f", "summary.yml", "-o", "none")

	job, status, why := u.invoke("-n", "irises", "--input", data)
	if status != "Completed" {
		t.Fatalf("%s: %s", status, why)
	}
	rows, err := csv.NewReader(bytes.NewReader(u.result(job, "score", "irises.csv"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var want [][]string
	for i, p := range right {
		name := "a.csv"
		if i >= 60 {
			name = "b.jsonl"
		}
		if i >= 100 {
			name = "c, last.csv"
		}
		want = append(want, []string{name, p})
	}
	if fmt.Sprint(rows) != fmt.Sprint(want) {
		t.Errorf("the rows are %v", rows)
	}
	if !strings.Contains(why, "2 items failed") {
		t.Errorf("the files that failed are not told: %s", why)
	}

	one, status, why := u.invoke("-n", "irises", "--input", filepath.Join(data, "a.csv"))
	if status != "Completed" {
		t.Fatalf("%s: %s", status, why)
	}
	if rows := u.result(one, "score", "irises.csv"); !strings.HasPrefix(string(rows), "a.csv,"+right[0]+"\n") || bytes.Count(rows, []byte("\n")) != 60 {
		t.Errorf("one file gives %s", rows)
	}

	_, status, why = u.invoke("-n", "irises", "-d", "strict", "--input", data)
	if status != "Failed" || !strings.Contains(why, "2 items have failed, and error_threshold allows 1") {
		t.Errorf("%s: %s", status, why)
	}

	job, status, why = u.invoke("-n", "irises", "-d", "summary", "--input", data)
	if status != "Completed" {
		t.Fatalf("%s: %s", status, why)
	}
	if got := string(u.result(job, "score", "irises.csv")); got != "a.csv\nb.jsonl\n\"c, last.csv\"\n" {
		t.Errorf("the summary is %q", got)
	}
	if list := u.berth("batch-deployment", "list-jobs", "-e", "irises", "-n", "rows", "--query", "[].name", "-o", "tsv"); len(strings.Fields(list)) != 2 {
		t.Errorf("the jobs of the deployment are %s", list)
	}
}
