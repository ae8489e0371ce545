//go:build linux && engines

package kubernetes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// unschedulable: the reason of the scheduler is shown, and what waits can be stopped.
func unschedulable(t *testing.T) {
	ctx := timed(t)
	f := open(t, `"instanceTypes":{"gpu":{"nodeSelector":{"kubernetes.io/hostname":"localhost"},"resources":{"requests":{"cpu":1},"limits":{"nvidia.com/gpu":1}}}}`)
	l := f.launch(1, "true")
	l.InstanceType = "gpu"
	h := f.start(ctx, t, l)
	f.says(ctx, t, "Insufficient nvidia.com/gpu")
	if err := f.d.Stop(ctx, h, driver.Stop{}); err != nil {
		t.Fatal(err)
	}
	f.ends(ctx, t, "canceled", "asked to stop")
}

// quota: a pod that the namespace has no room for is waited for, and the reason is shown.
func quota(t *testing.T) {
	ctx := timed(t)
	f := open(t)
	cluster.Apply(t, `{apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: `+f.space+`}, spec: {hard: {pods: "0"}}}`)
	f.start(ctx, t, f.launch(1, "true"))
	f.says(ctx, t, "exceeded quota: q")
	if out, err := cluster.Kubectl("delete", "resourcequota", "q", "-n", f.space); err != nil {
		t.Fatal(out)
	}
	if e := f.until(ctx, t, func(o driver.Observed) bool { return o.State == berth.TaskDone }).Exit; !e.OK() {
		t.Errorf("exit %+v", e)
	}
}

// outOfMemory: a task that takes more memory than it may is told apart from one that fails.
func outOfMemory(t *testing.T) {
	ctx := timed(t)
	f := open(t, `"defaultInstanceType":"small","instanceTypes":{"small":{"resources":{"limits":{"memory":"64Mi"}}}}`)
	f.start(ctx, t, f.launch(1, "exec tail -c 300m /dev/zero"))
	if e := f.ends(ctx, t, "", "memory"); !e.OOM || e.Code != 137 {
		t.Errorf("exit %+v", e)
	}
}

// podDeleted: a task whose pod was deleted behind the server's back may run again.
func podDeleted(t *testing.T) {
	ctx := timed(t)
	f := open(t)
	f.start(ctx, t, f.launch(1, "sleep 600"))
	f.until(ctx, t, running)
	if out, err := cluster.Kubectl("delete", "pods", "-n", f.space, "--all", "--grace-period=1", "--wait=false"); err != nil {
		t.Fatal(out)
	}
	f.ends(ctx, t, "evicted", "its pod was deleted")
}

// jobDeleted: a task whose Job was deleted is not there any more.
func jobDeleted(t *testing.T) {
	ctx := timed(t)
	f := open(t)
	h := f.start(ctx, t, f.launch(1, "sleep 600"))
	f.until(ctx, t, running)
	if out, err := cluster.Kubectl("delete", "jobs", "-n", f.space, "--all", "--wait=false"); err != nil {
		t.Fatal(out)
	}
	for {
		all, err := f.d.Observe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 0 {
			break
		}
	}
	if err := f.d.Remove(ctx, h); err != nil {
		t.Error(err)
	}
}

// evicted: a task whose pod was evicted, as when its node is drained, may run again.
func evicted(t *testing.T) {
	ctx := timed(t)
	f := open(t)
	f.start(ctx, t, f.launch(1, "sleep 600"))
	f.until(ctx, t, running)
	name, err := cluster.Kubectl("get", "pods", "-n", f.space, "-o", "name")
	if err != nil {
		t.Fatal(name)
	}
	name = strings.TrimPrefix(name, "pod/")
	path := filepath.Join(t.TempDir(), "eviction.json")
	body := `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"` + name + `","namespace":"` + f.space + `"}}`
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := cluster.Kubectl("create", "--raw", "/api/v1/namespaces/"+f.space+"/pods/"+name+"/eviction", "-f", path); err != nil {
		t.Fatal(out)
	}
	f.ends(ctx, t, "evicted", "")
}

// podItself: what a task sees: the variables of its image, shared memory, no account of the
// cluster, and nothing of its launch.
func podItself(t *testing.T) {
	const noAuthority = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" // which curl does not take
	for _, x := range []struct {
		ca         string
		properties []string
	}{{}, {"", []string{`"tunnel":"never"`}}, {noAuthority, nil}} { // brought by an init container, by its own, and by the hash
		ctx := timed(t)
		f := open(t, x.properties...)
		f.ca = append([]byte(x.ca), f.ca...)
		l := f.launch(1, `echo $FROM_IMAGE $MINE; df -k /dev/shm | tail -n 1 | awk '{print $2}'; ls /var/run/secrets 2>/dev/null; ls /berth-launch 2>/dev/null; cat /berth-launch/..data/.* 2>/dev/null; ls /berth/task/launch.json 2>/dev/null; env | grep -i -e token -e launch; tr '\0' '\n' </proc/1/environ | grep -i launch; umask`)
		l.Env, l.ShmSize = map[string]string{"MINE": "too"}, "32m"
		f.start(ctx, t, l)
		f.until(ctx, t, func(o driver.Observed) bool { return o.State == berth.TaskDone })
		if got := f.log(l); got != "yes too\n32768\n0022\n" {
			t.Errorf("%v: it sees %q", x, got)
		}
	}
}

// ownBringing: the first pod of an image shows that pods reach the server; those after it have one
// container, until one of them does not reach it: it never ran, and the next is helped.
func ownBringing(t *testing.T) {
	ctx := timed(t)
	f := open(t)
	run := func(n int, home string) (*berth.Exit, string) {
		l := f.launch(n, "exit 3")
		l.Home.URL = home
		h := f.start(ctx, t, l)
		e := f.until(ctx, t, func(o driver.Observed) bool { return o.State == berth.TaskDone }).Exit
		init, err := cluster.Kubectl("get", "pods", "-n", f.space, "-o", "jsonpath={.items[0].spec.initContainers[*].name}")
		if err != nil {
			t.Fatal(init)
		}
		if err := f.d.Remove(ctx, h); err != nil {
			t.Fatal(err)
		}
		return e, init
	}
	if e, init := run(1, f.api.URL); e.Code != 3 || init == "" {
		t.Errorf("the first pod: exit %+v, init container %q", e, init)
	}
	if e, init := run(2, f.api.URL); e.Code != 3 || init != "" {
		t.Errorf("the second pod: exit %+v, init container %q", e, init)
	}
	if e, init := run(3, "https://127.0.0.1:9"); e.Cause != "evicted" || !strings.Contains(e.Reason, "pods have to reach the server") || init != "" {
		t.Errorf("a pod that does not reach the server: exit %+v, init container %q", e, init)
	}
	if e, init := run(4, "https://127.0.0.1:9"); e.Code != 3 || init == "" {
		t.Errorf("the one after it: exit %+v, init container %q", e, init)
	}
}

// queue: a task of a queue waits until Kueue, or here an administrator, lets it start, and can be
// stopped before.
func queue(t *testing.T) {
	ctx := timed(t)
	f := open(t, `"queueName":"research"`)
	h := f.start(ctx, t, f.launch(1, "true"))
	f.says(ctx, t, "from queue research")
	if err := f.d.Stop(ctx, h, driver.Stop{}); err != nil {
		t.Fatal(err)
	}
	f.ends(ctx, t, "canceled", "asked to stop")
	if err := f.d.Remove(ctx, h); err != nil {
		t.Fatal(err)
	}
	f.start(ctx, t, f.launch(2, "true"))
	f.says(ctx, t, "from queue research")
	name, err := cluster.Kubectl("get", "jobs", "-n", f.space, "-l", "kueue.x-k8s.io/queue-name=research", "-o", "name")
	if err != nil {
		t.Fatal(name)
	}
	if out, err := cluster.Kubectl("patch", name, "-n", f.space, "-p", `{"spec":{"suspend":false}}`); err != nil {
		t.Fatal(out)
	}
	if e := f.until(ctx, t, func(o driver.Observed) bool { return o.State == berth.TaskDone }).Exit; !e.OK() {
		t.Errorf("exit %+v", e)
	}
}

// nodeLost: a task whose node is gone without a word may run again.
func nodeLost(t *testing.T) {
	ctx := timed(t)
	f := open(t)
	f.start(ctx, t, f.launch(1, "sleep 600"))
	f.until(ctx, t, running)
	cluster.Kill("kubelet")
	defer cluster.Kubelet(t)
	if out, err := cluster.Kubectl("delete", "pods", "-n", f.space, "--all", "--grace-period=1", "--wait=false"); err != nil { // as Kubernetes does then
		t.Fatal(out)
	}
	f.ends(ctx, t, "evicted", "does not answer")
}

// serverNotReached: where pods do not reach the server, that is the reason.
func serverNotReached(t *testing.T) {
	ctx := timed(t)
	f := open(t, `"tunnel":"never"`)
	l := f.launch(1, "true")
	l.Home.URL = "https://127.0.0.1:9"
	f.start(ctx, t, l)
	f.ends(ctx, t, "staging", "pods have to reach the server at this address")
}

// apiServerAway: while the cluster does not answer nothing is known, and nothing is lost.
func apiServerAway(t *testing.T) {
	ctx := timed(t)
	f := open(t)
	l := f.launch(1, "echo begin; sleep 2; exit 3")
	h := f.start(ctx, t, l)
	f.until(ctx, t, running)
	cluster.Kill("kube-apiserver")
	for {
		all, err := f.d.Observe(ctx)
		if berth.CodeOf(err) == berth.Unavailable {
			break
		}
		if err != nil || ctx.Err() != nil || len(all) != 1 {
			t.Fatalf("without an API server: %+v, %v", all, err)
		}
	}
	if err := f.d.Stop(ctx, h, driver.Stop{}); berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("stop: %v", err)
	}
	cluster.APIServer(t)
	if e := f.ends(ctx, t, "", "exit code 3"); e.Code != 3 {
		t.Errorf("exit %+v", e)
	}
}
