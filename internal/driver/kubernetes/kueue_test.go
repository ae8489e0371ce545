//go:build linux && engines

package kubernetes_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// queues are those of a namespace with room for two tasks.
const queues = `{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: default}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: shared}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: [{name: cpu, nominalQuota: 200m}]}]}]
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: research, namespace: @SPACE@}, spec: {clusterQueue: shared}}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent}, value: 1000}
`

// urgent is somebody else's Job, which takes all of the queue.
const urgent = `{apiVersion: batch/v1, kind: Job, metadata: {name: urgent, namespace: @SPACE@, labels: {kueue.x-k8s.io/queue-name: research}}, spec: {suspend: true, template: {spec: {
priorityClassName: urgent, restartPolicy: Never, containers: [{name: x, image: localhost/busybox:1, imagePullPolicy: Never, command: [sleep, "600"], resources: {requests: {cpu: 200m}}}]}}}}`

// realKueue: Kueue decides when tasks and gangs start, its reasons are shown, and a task from which
// it takes its place ends as evicted and does not run a second time.
func realKueue(t *testing.T) {
	ctx := timed(t)
	began := time.Now()
	cluster.Kueue(t)
	defer cluster.StopKueue(t)
	t.Logf("Kueue runs after %v", time.Since(began))
	f := open(t, `"queueName":"research","defaultInstanceType":"part","instanceTypes":{"part":{"resources":{"requests":{"cpu":"100m"}}}}`)
	cluster.Apply(t, strings.ReplaceAll(queues, "@SPACE@", f.space))

	first := f.start(ctx, t, f.launch(1, "sleep 600"))
	f.until(ctx, t, running)

	// A gang that has room for one of two waits as a whole.
	gang := []berth.Launch{f.launch(2, "sleep 600"), f.launch(3, "sleep 600")}
	for i := range gang {
		gang[i].Job = "gang"
		gang[i].Group = &berth.Group{
			Node: i, Nodes: []berth.Peer{{Slots: 1}, {Slots: 1}}, Port: 29500, Secret: "secret", World: 2, Processes: []berth.Process{{Rank: i}},
		}
	}
	hs, err := f.d.(driver.Ganger).StartGang(ctx, gang)
	if err != nil {
		t.Fatal(err)
	}
	all := f.all(ctx, t, "the gang waits", func(all map[berth.TaskID]driver.Observed) bool {
		return strings.Contains(all[gang[0].Task].Why, "insufficient unused quota for cpu in flavor default, 100m more needed")
	})
	for _, l := range gang {
		if o := all[l.Task]; o.State != berth.TaskPlaced || o.Node != "" {
			t.Errorf("a task of a gang that waits: %+v", o)
		}
	}
	f.cancel(ctx, t, 1, first)
	f.all(ctx, t, "the gang runs", func(all map[berth.TaskID]driver.Observed) bool {
		return running(all[gang[0].Task]) && running(all[gang[1].Task])
	})

	// One that waits behind it can be canceled.
	waits := f.start(ctx, t, f.launch(4, "true"))
	f.all(ctx, t, "it waits", func(all map[berth.TaskID]driver.Observed) bool {
		return strings.Contains(all["job-4.1"].Why, "from queue research: couldn't assign flavors")
	})
	f.cancel(ctx, t, 4, waits)
	if err := f.d.Stop(ctx, hs[0], driver.Stop{Grace: time.Second}); err != nil {
		t.Fatal(err)
	}
	f.all(ctx, t, "the gang ends", func(all map[berth.TaskID]driver.Observed) bool {
		return all["job-2.1"].State == berth.TaskDone && all["job-3.1"].State == berth.TaskDone
	})
	for _, h := range hs {
		if err := f.d.Remove(ctx, h); err != nil {
			t.Fatal(err)
		}
	}

	// What is more urgent takes its place; the task was evicted, and does not begin again.
	l := f.launch(5, "echo begin; sleep 600")
	h := f.start(ctx, t, l)
	f.until(ctx, t, running)
	f.logs1(ctx, t, l, "begin\n")
	cluster.Apply(t, strings.ReplaceAll(urgent, "@SPACE@", f.space))
	f.ends(ctx, t, "evicted", "Kueue took its place in queue research back")
	if out, err := cluster.Kubectl("delete", "job", "urgent", "-n", f.space); err != nil {
		t.Fatal(out)
	}
	next := f.launch(6, "true")
	second := f.start(ctx, t, next)
	f.all(ctx, t, "the next attempt ends", func(all map[berth.TaskID]driver.Observed) bool {
		o := all[l.Task]
		if o.State != berth.TaskDone || o.Exit.Cause != "evicted" {
			t.Fatalf("it began again: %+v", o)
		}
		return all[next.Task].State == berth.TaskDone && all[next.Task].Exit.OK()
	})
	for _, h := range []driver.Handle{h, second} {
		if err := f.d.Remove(ctx, h); err != nil {
			t.Fatal(err)
		}
	}
	if log := f.log(l); log != "begin\n" {
		t.Errorf("the log of the task that was evicted is %q", log)
	}

	// An installation that serves one version only.
	if out, err := cluster.Kubectl("patch", "crd", "workloads.kueue.x-k8s.io", "--type", "json", "-p", `[{"op":"replace","path":"/spec/versions/0/served","value":false}]`); err != nil {
		t.Fatal(out)
	}
	cluster.Apply(t, strings.ReplaceAll(urgent, "@SPACE@", f.space))
	last := f.start(ctx, t, f.launch(7, "true"))
	f.says(ctx, t, "insufficient")
	f.cancel(ctx, t, 7, last)
}

// all waits until the tasks are as they should be.
func (f *fixture) all(ctx context.Context, t *testing.T, what string, ok func(map[berth.TaskID]driver.Observed) bool) map[berth.TaskID]driver.Observed {
	t.Helper()
	for {
		seen, err := f.d.Observe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		all := map[berth.TaskID]driver.Observed{}
		for _, o := range seen {
			all[o.Task] = o
		}
		if ok(all) {
			return all
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: last seen %+v", what, all)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// cancel stops a task and removes it.
func (f *fixture) cancel(ctx context.Context, t *testing.T, n int, h driver.Handle) {
	t.Helper()
	if err := f.d.Stop(ctx, h, driver.Stop{Grace: time.Second}); err != nil {
		t.Fatal(err)
	}
	id := berth.TaskID(fmt.Sprintf("job-%d.1", n))
	all := f.all(ctx, t, "it ends", func(all map[berth.TaskID]driver.Observed) bool { return all[id].State == berth.TaskDone })
	if e := all[id].Exit; e.Cause != "canceled" {
		t.Errorf("%s: exit %+v", id, e)
	}
	if err := f.d.Remove(ctx, h); err != nil {
		t.Fatal(err)
	}
}
