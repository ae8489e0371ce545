//go:build linux && engines

package attached_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/driver/kubernetes"
	"github.com/berthml/berth/internal/driver/kubernetes/kubetest"
)

// pythonImage has a Python, as replicas need.
const pythonImage = "localhost/python:1"

// TestKubernetesAround tells the other stories of a Kubernetes cluster, on one.
func TestKubernetesAround(t *testing.T) {
	c := kubetest.Start(t)
	defer c.Stop(t)
	if out, err := c.Kubectl("create", "namespace", "ml"); err != nil {
		t.Fatal(out)
	}
	c.Apply(t, kubernetes.RBAC("ml"))
	t.Run("Replica", func(t *testing.T) { replicaInPod(t, c) })
	t.Run("Cluster", func(t *testing.T) { clusterOfPods(t, c) })
	t.Run("SDK", func(t *testing.T) { attachBySDK(t, c) })
	t.Run("InCluster", func(t *testing.T) { serverInPod(t, c) })
	t.Run("Queue", func(t *testing.T) { queueOfKueue(t, c) })
}

// replicaInPod serves a model from pods that cannot reach the server at its address: through the
// gateway, also after the pod was deleted behind the server's back and after the server was killed.
func replicaInPod(t *testing.T, c *kubetest.Cluster) {
	c.AddImage(t, pythonImage, "/usr/bin/python3*", "/usr/lib/python3.[0-9]*")
	home := world.Home(t)
	write(t, filepath.Join(home, "berth.yaml"), "kubernetes: true\nadvertise: https://10.244.7.250:9\n")
	s := world.StartIn(t, home)
	run(t, s, "compute", "attach", "-n", "k8s", "--type", "kubernetes", "--kubeconfig", c.Kubeconfig, "--namespace", "ml", "--image", pythonImage, "--set", "image_pull_policy=Never")
	until(t, s, "has been connected since", "explain", "k8s")
	code := t.TempDir()
	write(t, filepath.Join(code, "score.py"), "import json, os\ndef init(): pass\ndef run(data): return {'pod': os.uname().nodename, 'got': json.loads(data)}\n")
	run(t, s, "deploy", code, "--name", "houses", "--on", "k8s")
	answer := []string{"endpoint", "test", "houses", "-d", `{"data": [1]}`}
	first := run(t, s, answer...)
	if !strings.Contains(first, `"pod": "b-`) || !strings.Contains(first, `"data": [1]`) {
		t.Fatalf("the answer: %s", first)
	}
	until(t, s, "cannot reach the server at its address", "explain", "k8s")

	deletePods(t, c)
	until(t, s, "starts again: ", "endpoint", "explain", "houses")
	second := until(t, s, `"data": [1]`, answer...)
	if first == second {
		t.Errorf("it answers from the pod that was deleted: %s", second)
	}
	syscall.Kill(serverPID(t, s), syscall.SIGKILL)
	run(t, s, "up")
	if third := until(t, s, `"data": [1]`, answer...); pod(third) != pod(second) {
		t.Errorf("a server that began again started another replica: %s, %s", second, third)
	}
	run(t, s, "endpoint", "delete", "houses", "--yes")
	until(t, s, "[]", "job", "list", "-o", "json", "--query", "[?status=='Running']")
	run(t, s, "compute", "detach", "-n", "k8s", "--yes")
}

// pod is the part of an answer that names the pod.
func pod(answer string) string {
	_, rest, _ := strings.Cut(answer, `"pod": "`)
	name, _, _ := strings.Cut(rest, `"`)
	return name
}

// attachBySDK attaches the cluster, which the operator offers by its name, with Azure's own client.
func attachBySDK(t *testing.T, c *kubetest.Cluster) {
	python := world.Python(t, "azure-ai-ml==1.35.2", "azure-identity==1.27.0", "six==1.17.0")
	home := world.Home(t)
	write(t, filepath.Join(home, "berth.yaml"), "kubernetes: true\nlisten: "+kubetest.Gateway+":0\n")
	if err := os.Mkdir(filepath.Join(home, "kubernetes"), 0o700); err != nil {
		t.Fatal(err)
	}
	flat, err := c.Kubectl("config", "view", "--flatten", "--raw")
	if err != nil {
		t.Fatal(flat)
	}
	write(t, filepath.Join(home, "kubernetes", "lab.kubeconfig"), strings.Replace(flat, "user: ", "namespace: ml\n    user: ", 1))
	s := world.StartIn(t, home)
	cmd := exec.Command(python, "kubernetes.py", filepath.Join(t.TempDir(), "work"), kubetest.Image)
	cmd.Env = s.Environ()
	out, err := cmd.CombinedOutput()
	for _, line := range []string{"seen: python\n", "seen: yaml\n", "seen: detach\n"} {
		if err != nil || !strings.Contains(string(out), line) {
			t.Fatalf("%q: %v\n%s", line, err, out)
		}
	}
}

// serverInPod runs a server in a pod, which attaches its own cluster by its service account and
// runs a job there.
func serverInPod(t *testing.T, c *kubetest.Cluster) {
	bin := world.Binary(t)
	host, port := c.API()
	address := kubetest.Gateway + ":47111"
	c.Apply(t, `
apiVersion: v1
kind: ConfigMap
metadata: {name: server, namespace: ml}
data: {berth.yaml: "kubernetes: in-cluster/ml\nlisten: `+address+`\n"}
---
apiVersion: v1
kind: Pod
metadata: {name: server, namespace: ml}
spec:
  hostNetwork: true  # of this machine, where the API server of the test listens
  serviceAccountName: berth
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: server
    image: `+kubetest.Image+`
    imagePullPolicy: Never
    workingDir: /srv/work
    command: [/bin/sh, -c, "mkdir -p /home/berth && cp /config/berth.yaml /home/berth && exec /program/berth serve"]
    env:
    - {name: BERTH_HOME, value: /home/berth}
    - {name: HOME, value: /home}
    - {name: KUBERNETES_SERVICE_HOST, value: "`+host+`"}
    - {name: KUBERNETES_SERVICE_PORT, value: "`+port+`"}
    volumeMounts: [{name: program, mountPath: /program}, {name: config, mountPath: /config}]
  volumes:
  - {name: program, hostPath: {path: `+filepath.Dir(bin)+`}}
  - {name: config, configMap: {name: server}}
`)
	in := func(args ...string) (string, error) {
		return c.Kubectl(append([]string{"exec", "-n", "ml", "server", "-c", "server", "--", "/program/" + filepath.Base(bin)}, args...)...)
	}
	untilSays(t, "own", func() (string, error) {
		return in("compute", "attach", "-n", "own", "--type", "kubernetes", "--image", kubetest.Image, "--set", "image_pull_policy=Never")
	})
	untilSays(t, "has been connected since", func() (string, error) { return in("explain", "own") })
	if out, err := in("run", "--on", "own", "--name", "inside", "--", "echo said inside"); err != nil || !strings.Contains(out, "said inside") {
		logs, _ := c.Kubectl("logs", "-n", "ml", "server")
		t.Errorf("a job of the server in the cluster: %v\n%s\n%s", err, out, logs)
	}
	if out, err := c.Kubectl("delete", "pod", "-n", "ml", "server", "--wait=true", "--timeout=60s"); err != nil {
		t.Error(out)
	}
}
