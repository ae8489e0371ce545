//go:build linux && engines

package attached_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/driver/kubernetes/kubetest"
)

// clusterOfPods has a managed cluster whose nodes are pods: they come when a job needs them, say
// what they wait for, are taken away behind the server's back, and go when they are idle.
func clusterOfPods(t *testing.T, c *kubetest.Cluster) {
	home, dir := world.Home(t), t.TempDir()
	write(t, filepath.Join(home, "berth.yaml"), "kubernetes: true\nlisten: "+kubetest.Gateway+":0\n")
	s := world.StartIn(t, home)
	run(t, s, "compute", "attach", "-f", write(t, filepath.Join(dir, "k8s.yml"), `name: k8s
type: kubernetes
namespace: ml
kubeconfig: `+c.Kubeconfig+`
image: `+kubetest.Image+`
image_pull_policy: Never
properties:
  instanceTypes:
    Standard_DS1_v2: {resources: {requests: {cpu: 100m, memory: 64Mi}}}
    Standard_DS2_v2: {nodeSelector: {pool: none}}
`))
	until(t, s, "has been connected since", "explain", "k8s")
	for name, size := range map[string]string{"small": "Standard_DS1_v2", "never": "Standard_DS2_v2"} {
		run(t, s, "compute", "create", "-f", write(t, filepath.Join(dir, name+".yml"), "name: "+name+"\ntype: amlcompute\nsize: "+size+
			"\nmax_instances: 2\nidle_time_before_scale_down: 2\ntags: {berth.provider: k8s}\n"))
	}
	run(t, s, "run", "--no-wait", "--name", "waits", "--on", "never", "--", "true")
	run(t, s, "run", "--no-wait", "--name", "first", "--on", "small", "--", "echo said on $(hostname); sleep 600")
	until(t, s, "said on b-", "logs", "first")
	if out := run(t, s, "compute", "list-nodes", "-n", "small", "-o", "json"); !strings.Contains(out, `"running"`) || !strings.Contains(out, `"first"`) {
		t.Errorf("nodes: %s", out)
	}
	until(t, s, "node(s) didn't match Pod's node affinity/selector", "compute", "list-nodes", "-n", "never", "-o", "json")
	if out, err := try(s, "compute", "detach", "-n", "k8s", "--yes"); err == nil {
		t.Errorf("detached: %s", out)
	}
	deletePods(t, c)
	until(t, s, "its pod was deleted in the cluster", "events", "computes/small")
	for _, name := range []string{"waits", "first"} {
		try(s, "job", "cancel", "-n", name)
	}
	until(t, s, "[]", "compute", "list-nodes", "-n", "small", "-o", "json")
	for _, name := range []string{"small", "never"} { // a node that is asked for is waited for, unless its cluster goes
		run(t, s, "compute", "delete", "-n", name, "--yes")
	}
	if out, err := c.Kubectl("get", "jobs,pods,secrets", "-n", "ml", "-l", "berth/provider", "-o", "name"); err != nil || out != "" {
		t.Errorf("left of the nodes: %s, %v", out, err)
	}
}
