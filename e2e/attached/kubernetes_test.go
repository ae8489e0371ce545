//go:build linux && engines

package attached_test

import (
	"bytes"
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/driver/kubernetes/kubetest"
)

// podGate is the file in the pod that the command of a job waits for.
const podGate = "/tmp/gate"

// openGate lets the jobs that run go on. Their log may be here before the cluster knows that they
// run.
func openGate(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	pods, err := c.Kubectl("get", "pods", "-n", "ml", "-o", "name")
	if err != nil {
		t.Fatal(pods)
	}
	for name := range strings.FieldsSeq(pods) {
		if out, err := c.Kubectl("wait", "-n", "ml", name, "--for=jsonpath={.status.phase}=Running", "--timeout=60s"); err != nil {
			t.Fatal(out)
		}
		if out, err := c.Kubectl("exec", "-n", "ml", name, "-c", "task", "--", "touch", podGate); err != nil {
			t.Fatal(out)
		}
	}
}

// podJob is the job of the other stories with an image that pods have, and a metric.
func podJob(t *testing.T, code int) string {
	t.Helper()
	path := job(t, podGate, code)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("python:3.12", kubetest.Image, "properties: {berth.environment: host}\n", "", "command: sh work.sh",
		`command: >-
  curl -fsSk -H "Authorization: Bearer $MLFLOW_TRACKING_TOKEN" -H 'Content-Type: application/json' -o /dev/null
  -d '{"run_id":"'$MLFLOW_RUN_ID'","key":"loss","value":0.5,"timestamp":1,"step":0}'
  $MLFLOW_TRACKING_URI/api/2.0/mlflow/runs/log-metric && sh work.sh`).Replace(string(b))
	return write(t, path, text)
}

// TestKubernetesStory runs jobs on a Kubernetes cluster, with the least rights: with code, an
// input, outputs and a metric, while the server and the API server are killed.
func TestKubernetesStory(t *testing.T) {
	c := kubetest.Start(t)
	defer c.Stop(t)
	home := world.Home(t)
	write(t, filepath.Join(home, "berth.yaml"), "kubernetes: true\nlisten: "+kubetest.Gateway+":0\n")
	s := world.StartIn(t, home)
	if out, err := c.Kubectl("create", "namespace", "ml"); err != nil {
		t.Fatal(out)
	}
	rights := run(t, s, "compute", "attach", "--print-rbac", "--namespace", "ml")
	c.Apply(t, rights)

	attach := []string{"compute", "attach", "-n", "laptop", "--type", "kubernetes", "--kubeconfig", c.Kubeconfig, "--namespace", "ml", "--image", kubetest.Image, "--set", "image_pull_policy=Never"}
	run(t, s, attach...)
	until(t, s, "has been connected since", "explain", "laptop")
	if out := run(t, s, "compute", "show", "-n", "laptop", "-o", "json"); strings.Contains(out, "PRIVATE") || strings.Contains(out, "client-key") {
		t.Errorf("the kubeconfig is shown: %s", out)
	}
	for _, name := range []string{"first", "second"} {
		run(t, s, "job", "create", "-f", podJob(t, map[string]int{"second": 3}[name]), "-n", name)
	}
	until(t, s, "some words", "logs", "first")
	until(t, s, "some words", "logs", "second")
	if out := run(t, s, "metrics", "first"); !strings.Contains(out, "loss") {
		t.Errorf("metrics: %s", out)
	}

	openGate(t, c)
	c.Kill("kube-apiserver")
	syscall.Kill(serverPID(t, s), syscall.SIGKILL) // they end while there is neither
	run(t, s, "up")
	until(t, s, "Completed", "job", "show", "-n", "first", "-o", "json")
	until(t, s, "Failed", "job", "show", "-n", "second", "-o", "json")
	run(t, s, "run", "--no-wait", "--name", "third", "--on", "laptop", "--", "mkdir -p outputs; trap 'sleep 3; echo saved > outputs/saved.txt; exit 1' TERM; sleep 600 & wait")
	until(t, s, "does not answer", "explain", "laptop")
	c.APIServer(t)
	for _, name := range []string{"first", "second"} {
		if out, _ := try(s, "logs", name); out != "begin\nsome words\nend\n" {
			t.Errorf("log of %s: %q", name, out)
		}
	}
	to := t.TempDir()
	run(t, s, "job", "download", "-n", "first", "--all", "-p", to)
	for name, want := range map[string]string{"copy.txt": "some words\n", "kept.txt": "kept\n"} {
		if got := find(t, to, name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	until(t, s, "Running", "job", "show", "-n", "third", "-o", "json")
	deletePods(t, c) // behind the server's back
	until(t, s, "its pod was deleted in the cluster", "events", "third")
	until(t, s, "Running", "job", "show", "-n", "third", "-o", "json")
	run(t, s, "job", "cancel", "-n", "third")
	until(t, s, "Canceled", "job", "show", "-n", "third", "-o", "json")
	run(t, s, "job", "download", "-n", "third", "--all", "-p", to)
	if got := find(t, to, "saved.txt"); got != "saved\n" {
		t.Errorf("what it saved when it was canceled: %q", got)
	}
	noKubeconfig(t, c, home)
	run(t, s, "compute", "detach", "-n", "laptop", "--yes")
}

// deletePods deletes the pods that run.
func deletePods(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	if out, err := c.Kubectl("delete", "pods", "-n", "ml", "--all", "--grace-period=1"); err != nil {
		t.Fatal(out)
	}
}

// noKubeconfig checks that no file of the server has the key of the kubeconfig.
func noKubeconfig(t *testing.T, c *kubetest.Cluster, home string) {
	t.Helper()
	key, err := os.ReadFile(filepath.Join(filepath.Dir(c.Kubeconfig), "admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	secret := []byte(base64.StdEncoding.EncodeToString(key))[40:120]
	err = filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // files come and go while the server runs
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, secret) {
			t.Errorf("%s has the key of the kubeconfig", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestKubernetesNeedsTheOperator: where the operator has said nothing, nobody can make the server
// connect to a cluster.
func TestKubernetesNeedsTheOperator(t *testing.T) {
	s := world.Start(t)
	if out, err := try(s, "compute", "attach", "-n", "k8s", "--type", "kubernetes"); err == nil || !strings.Contains(out, "kubernetes: true") {
		t.Errorf("attached: %v\n%s", err, out)
	}
}
