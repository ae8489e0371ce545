//go:build linux && engines

package attached_test

import (
	"path/filepath"
	"testing"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/driver/kubernetes/kubetest"
)

// roomForOne is a queue of Kueue with room for one job.
const roomForOne = `{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: default}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: shared}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: [{name: cpu, nominalQuota: 100m}]}]}]
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: research, namespace: ml}, spec: {clusterQueue: shared}}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent}, value: 1000}
`

// urgentJob is somebody else's.
const urgentJob = `{apiVersion: batch/v1, kind: Job, metadata: {name: urgent, namespace: ml, labels: {kueue.x-k8s.io/queue-name: research}}, spec: {suspend: true, template: {spec: {
priorityClassName: urgent, restartPolicy: Never, containers: [{name: x, image: ` + kubetest.Image + `, imagePullPolicy: Never, command: [sleep, "600"], resources: {requests: {cpu: 100m}}}]}}}}`

// queueOfKueue: why a job waits for Kueue is explained, it can be canceled meanwhile, and one whose
// place Kueue takes back gets in line again.
func queueOfKueue(t *testing.T, c *kubetest.Cluster) {
	c.Kueue(t)
	defer c.StopKueue(t)
	c.Apply(t, roomForOne)
	home := world.Home(t)
	write(t, filepath.Join(home, "berth.yaml"), "kubernetes: true\nlisten: "+kubetest.Gateway+":0\n")
	s := world.StartIn(t, home)
	run(t, s, "compute", "attach", "-n", "shared", "--type", "kubernetes", "--kubeconfig", c.Kubeconfig, "--namespace", "ml", "--image", kubetest.Image,
		"--set", "image_pull_policy=Never", "--set", "queue_name=research")
	until(t, s, "has been connected since", "explain", "shared")
	run(t, s, "run", "--no-wait", "--name", "holds", "--on", "shared", "--cpus", "0.1", "--", "sleep 600")
	until(t, s, "Running", "job", "show", "-n", "holds", "-o", "json")
	run(t, s, "run", "--no-wait", "--name", "waits", "--on", "shared", "--cpus", "0.1", "--", "true")
	until(t, s, "Kueue has not let it start from queue research: couldn't assign flavors", "explain", "waits")
	run(t, s, "job", "cancel", "-n", "waits")
	until(t, s, "Canceled", "job", "show", "-n", "waits", "-o", "json")

	c.Apply(t, urgentJob)
	until(t, s, "Kueue took its place in queue research back", "events", "holds")
	until(t, s, "Kueue has not let it start from queue research", "explain", "holds")
	if out, err := c.Kubectl("delete", "job", "urgent", "-n", "ml"); err != nil {
		t.Fatal(out)
	}
	until(t, s, "Running", "job", "show", "-n", "holds", "-o", "json")
	run(t, s, "job", "cancel", "-n", "holds")
	until(t, s, "Canceled", "job", "show", "-n", "holds", "-o", "json")
	run(t, s, "compute", "detach", "-n", "shared", "--yes")
}
