package control_test

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
)

// TestZeroToFourToZero: ten jobs on an empty cluster of four nodes make it grow at once to four,
// never beyond, and nothing is left a minute after the last.
func TestZeroToFourToZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 0, 4, nil)
		p.settle("made", func() bool { v, _ := p.compute("cpu"); return v.Properties.ProvisioningState == "Succeeded" })
		began := time.Now()
		for i := range 10 {
			p.on("cpu", fmt.Sprintf("j%d", i), "sleep 30", nil)
		}
		p.until("j0", berth.Running)
		p.settle("four nodes in use", func() bool { // where cycles fail they are not ready in the same one
			v, _ := p.compute("cpu")
			c := v.Properties.Properties
			_, st := p.job("j9")
			return c.TargetNodeCount == 4 && c.NodeStateCounts.RunningNodeCount == 4 && c.AllocationState == "Steady" && strings.Contains(st.Reason, "all 4 nodes of cpu are in use")
		})
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("all nodes are in use after %v, and they boot in 2s", d)
		}
		for i := range 10 {
			p.until(fmt.Sprintf("j%d", i), berth.Completed)
			if v, _ := p.compute("cpu"); v.live() > 4 {
				t.Errorf("%d nodes", v.live())
			}
		}
		ended := time.Now()
		if v, _ := p.compute("cpu"); v.live() != 4 {
			t.Errorf("%d nodes right after the last job", v.live())
		}
		p.settle("empty", func() bool { v, _ := p.compute("cpu"); return v.live() == 0 })
		if d := time.Since(ended); d < 29*time.Second || d > 62*time.Second {
			t.Errorf("the last node went %v after the last job", d)
		}
		var jobs, nodes float64
		for _, m := range p.meters() {
			if m.Job != "" {
				jobs += m.To.Sub(m.From).Seconds()
			} else {
				nodes += m.To.Sub(m.From).Seconds()
			}
		}
		if math.Abs(jobs-300) > 3 || nodes < jobs {
			t.Errorf("metered %.0f s of jobs and %.0f s of nodes", jobs, nodes)
		}
		resized := 0
		for _, e := range p.events("computes/cpu") {
			if e.Type == berth.EventResize {
				resized++
				if e.Reason == "" {
					t.Errorf("a resize without a reason: %+v", e)
				}
			}
		}
		if resized == 0 || resized > 6 {
			t.Errorf("resized %d times", resized)
		}
	})
}

func TestGang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 0, 3, nil)
		p.on("cpu", "single", "sleep 20", nil)
		p.until("single", berth.Running)
		p.on("cpu", "gang", "sleep 60", map[string]any{
			"resources": map[string]any{"instanceCount": 3}, "distribution": map[string]any{"distributionType": "PyTorch", "processCountPerInstance": 2},
		})
		p.on("cpu", "after", "sleep 5", nil)
		time.Sleep(10 * time.Second)
		if s, st := p.job("after"); s != berth.Queued || !strings.Contains(st.Reason, "gang") {
			t.Errorf("a job behind a gang is %s: %s", s, st.Reason)
		}
		p.until("gang", berth.Running)
		tasks := p.tasks("gang")
		nodes := map[string]bool{}
		for i, task := range tasks {
			nodes[task.Node] = true
			l, _ := p.cluster.Launch(task.ID)
			if l.Group == nil || l.Group.World != 6 || l.Group.Node != i || len(l.Group.Processes) != 2 || l.Group.Processes[1].Rank != 2*i+1 || l.Group.Port != tasks[0].Port || len(l.Group.Nodes) != 3 {
				t.Errorf("task %d: %+v", i, l.Group)
			}
			if want := fmt.Sprintf("user_logs/std_log_process_%d.txt", 2*i); l.Log != want || l.LogFile == "" || l.Group.Processes[1].LogFile == "" {
				t.Errorf("task %d logs to %s (%s)", i, l.Log, l.LogFile)
			}
		}
		if len(tasks) != 3 || len(nodes) != 3 {
			t.Errorf("%d tasks on %d nodes", len(tasks), len(nodes))
		}
		p.cluster.Finish(tasks[1].ID, berth.Exit{Code: 7, Process: 3, Log: "user_logs/std_log_process_3.txt"})
		st := p.until("gang", berth.Failed)
		if st.Exit.Code != 7 || st.Exit.Process != 3 {
			t.Errorf("%+v", st.Exit)
		}
		p.until("after", berth.Completed)
		if code, b := p.put("huge", "cpu", "true", map[string]any{"resources": map[string]any{"instanceCount": 4}}); code != http.StatusBadRequest || !strings.Contains(string(b), "at most 3 nodes") {
			t.Errorf("a gang larger than the cluster: %d %s", code, b)
		}
	})
}

func TestEvict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("spot", 0, 2, map[string]any{"vmPriority": "LowPriority"})
		p.clusterOf("dear", 0, 2, nil)
		p.on("spot", "j", "forever", nil)
		p.on("dear", "k", "forever", nil)
		p.until("j", berth.Running)
		p.until("k", berth.Running)
		first := p.tasks("j")[0]
		l, _ := p.cluster.Launch(first.ID)
		if err := os.MkdirAll(l.Keep, 0o700); err != nil || l.Keep == "" {
			t.Fatalf("nothing is kept: %q %v", l.Keep, err)
		}
		if code, b := p.do("POST", p.ws+"/computes/spot/evict", map[string]any{}); code != http.StatusOK || !strings.Contains(string(b), first.Node) {
			t.Fatalf("%d %s", code, b)
		}
		p.settle("second attempt", func() bool { s, st := p.job("j"); return s == berth.Running && st.Attempt == 2 })
		tasks := p.tasks("j")
		if len(tasks) != 2 || tasks[0].Exit.Cause != "evicted" || tasks[1].Node == first.Node {
			t.Errorf("%+v", tasks)
		}
		if l2, _ := p.cluster.Launch(tasks[1].ID); l2.Keep != l.Keep || l2.Attempt != 2 || l2.Log != l.Log || l2.LogFile == l.LogFile {
			t.Errorf("second launch %+v", l2)
		}
		p.settle("reclaimed node gone", func() bool { v, _ := p.compute("spot"); return v.live() == 1 })

		// A drill leaves the node where it is.
		if code, b := p.do("POST", p.ws+"/computes/dear/evict", map[string]any{}); code != http.StatusConflict {
			t.Errorf("a dedicated node was reclaimed: %d %s", code, b)
		}
		node := p.tasks("k")[0].Node
		if code, b := p.do("POST", p.ws+"/computes/dear/evict", map[string]any{"simulate": true, "node": node}); code != http.StatusOK {
			t.Fatalf("%d %s", code, b)
		}
		p.settle("second attempt of k", func() bool { s, st := p.job("k"); return s == berth.Running && st.Attempt == 2 })
		if v, _ := p.compute("dear"); v.live() == 0 {
			t.Error("the drill took the node away")
		}
		p.cluster.Finish(tasks[1].ID, berth.Exit{})
		p.until("j", berth.Completed)
		synctest.Wait()
		if _, err := os.Stat(l.Keep); !os.IsNotExist(err) {
			t.Errorf("what the attempts kept is still there: %v", err)
		}
	})
}

// TestResizeInterrupted: a server that ends in the middle of a resize goes on where it was.
func TestResizeInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 0, 2, nil)
		p.on("cpu", "a", "sleep 5", nil)
		p.on("cpu", "b", "sleep 5", nil)
		p.settle("asked for", func() bool {
			v, _ := p.compute("cpu")
			return v.Properties.Properties.NodeStateCounts.PreparingNodeCount == 2
		})
		p.stop()
		p.run()
		p.until("a", berth.Completed)
		p.until("b", berth.Completed)
		p.cluster.Break("remove node", berth.Errorf(berth.Unavailable, "not now"))
		p.settle("leaving", func() bool {
			v, _ := p.compute("cpu")
			return v.Properties.Properties.NodeStateCounts.LeavingNodeCount > 0
		})
		p.stop()
		p.cluster.Break("remove node", nil)
		p.run()
		p.settle("empty", func() bool { v, _ := p.compute("cpu"); return v.live() == 0 })
		if info, err := p.cluster.Probe(t.Context()); err != nil || len(info.Nodes) != 0 {
			t.Errorf("nodes left: %+v %v", info.Nodes, err)
		}
	})
}

func TestProviderFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.cluster.Break("add node", berth.Errorf(berth.Unavailable, "no machine to be had"))
		p.clusterOf("cpu", 0, 2, nil)
		p.on("cpu", "j", "true", nil)
		p.settle("error shown", func() bool {
			v, _ := p.compute("cpu")
			e := v.Properties.Properties.Errors
			return len(e) == 1 && strings.Contains(e[0].Error.Message, "no machine to be had")
		})
		p.cluster.Break("add node", nil)
		p.until("j", berth.Completed)
		if v, _ := p.compute("cpu"); len(v.Properties.Properties.Errors) != 0 {
			t.Errorf("the error is still shown: %+v", v)
		}
	})
}

func TestDeleteCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 1, 1, nil)
		p.on("cpu", "runs", "sleep 30", nil)
		p.on("cpu", "waits", "sleep 30", nil)
		p.until("runs", berth.Running)
		if code, b := p.do("DELETE", p.ws+"/computes/cpu?underlyingResourceAction=Delete", nil); code != http.StatusConflict || !strings.Contains(string(b), "has jobs") {
			t.Errorf("%d %s", code, b)
		}
		if code, b := p.do("DELETE", p.ws+"/computes/cpu?drain=true", nil); code != http.StatusAccepted {
			t.Errorf("%d %s", code, b)
		}
		if st := p.until("waits", berth.Canceled); !strings.Contains(st.Reason, "cpu was deleted") {
			t.Errorf("reason %q", st.Reason)
		}
		if code, _ := p.put("late", "cpu", "true", nil); code != http.StatusConflict {
			t.Errorf("a job was taken by a cluster that is being deleted: %d", code)
		}
		p.until("runs", berth.Completed)
		p.settle("gone", func() bool { _, found := p.compute("cpu"); return !found })
		if info, err := p.cluster.Probe(t.Context()); err != nil || len(info.Nodes) != 0 {
			t.Errorf("nodes left: %+v %v", info.Nodes, err)
		}
	})
}

func TestServerless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.on("", "small", "true", nil)
		p.on("serverless", "big", "sleep 10", map[string]any{"resources": map[string]any{"instanceType": "standard_ds3_v2", "instanceCount": 2}})
		p.until("small", berth.Completed)
		p.until("big", berth.Running)
		if n := len(p.tasks("big")); n != 2 {
			t.Errorf("%d tasks", n)
		}
		_, b := p.do("GET", p.ws+"/computes", nil)
		if strings.Contains(string(b), "serverless") {
			t.Errorf("the pool is listed: %s", b)
		}
		p.until("big", berth.Completed)
		p.settle("pool removed", func() bool { _, found := p.compute("serverless-standard_ds3_v2"); return !found })
		if code, b := p.put("odd", "serverless", "true", map[string]any{"resources": map[string]any{"instanceType": "Standard_XYZ"}}); code != http.StatusBadRequest {
			t.Errorf("%d %s", code, b)
		}
	})
}

// TestLocalIsLocal: compute: local, as clients of Azure send it, is this machine whatever else the
// job asks for.
func TestLocalIsLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		local := func(more map[string]any) map[string]any {
			more["properties"] = map[string]any{"IsLocal": map[string]any{"IsLocal": true}}
			return map[string]any{"resources": more}
		}
		p.on("", "sized", "true", local(map[string]any{"instanceType": "Standard_NC6"}))
		p.until("sized", berth.Completed)
		if got := p.tasks("sized")[0].Compute; got != berth.LocalCompute {
			t.Errorf("it ran on %s", got)
		}
		if code, b := p.put("two", "", "true", local(map[string]any{"instanceCount": 2})); code != http.StatusBadRequest || !strings.Contains(string(b), "local runs a job on one node") {
			t.Errorf("%d %s", code, b)
		}
	})
}

// TestIsolated: a node of an isolated size has the machine for itself.
func TestIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 2)
		p.clusterOf("cpu", 0, 2, nil)
		p.clusterOf("alone", 0, 2, map[string]any{"vmSize": "Standard_F72s_v2", "scaleSettings": map[string]any{"minNodeCount": 0, "maxNodeCount": 2, "nodeIdleTimeBeforeScaleDown": "PT0S"}})
		p.on("cpu", "shared", "sleep 20", nil)
		p.until("shared", berth.Running)
		p.on("alone", "secret", "sleep 20", nil)
		p.on("", "machine", "sleep 1", nil)
		p.settle("says why", func() bool { s, st := p.job("secret"); return s == berth.Queued && strings.Contains(st.Reason, "cpu") })
		asked := time.Now()
		p.until("secret", berth.Running)
		if d := time.Since(asked); d > 40*time.Second {
			t.Errorf("an idle node was kept for %v while an isolated one waited", d)
		}
		if s, _ := p.job("shared"); s != berth.Completed {
			t.Errorf("an isolated node runs beside a job that is %s", s)
		}
		if v, _ := p.compute("cpu"); v.live() != 0 {
			t.Errorf("an isolated node runs beside %d others", v.live())
		}
		if s, st := p.job("machine"); s != berth.Queued || !strings.Contains(st.Reason, "alone") {
			t.Errorf("a local job is %s: %s", s, st.Reason)
		}
		p.until("secret", berth.Completed)
		p.until("machine", berth.Completed)
	})
}

func TestNodeKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 0, 2, nil)
		p.on("cpu", "j", "forever", nil)
		p.until("j", berth.Running)
		p.cluster.KillNode(p.tasks("j")[0].Node)
		if st := p.until("j", berth.Failed); st.Exit.Cause != "lost" {
			t.Errorf("%+v", st.Exit)
		}
		p.on("cpu", "next", "true", nil)
		p.until("next", berth.Completed)
	})
}

// TestBackfill: a job that is known to end in time runs before a gang that waits, another does not.
func TestBackfill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 2, 2, nil)
		timeout := func(d string) map[string]any { return map[string]any{"limits": map[string]any{"timeout": d}} }
		p.on("cpu", "long", "sleep 200", timeout("PT20M"))
		p.until("long", berth.Running)
		p.on("cpu", "gang", "sleep 10", map[string]any{"resources": map[string]any{"instanceCount": 2}})
		p.on("cpu", "endless", "sleep 10", nil)
		p.on("cpu", "short", "sleep 10", timeout("PT1M"))
		p.until("short", berth.Completed)
		if s, st := p.job("endless"); s != berth.Queued || !strings.Contains(st.Reason, "gang") {
			t.Errorf("a job that may run for ever is %s before a gang that waits: %s", s, st.Reason)
		}
		if s, _ := p.job("gang"); s != berth.Queued {
			t.Errorf("gang is %s", s)
		}
		p.until("gang", berth.Completed)
		p.until("endless", berth.Completed)
	})
}

// TestEndedWhileAway: the end of a task of which the server took note, and nothing more before it
// died, is made up for: what it cost is written down, and its node is idle from then on and goes
// when its time has come.
func TestEndedWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 0, 1, nil)
		p.on("cpu", "j", "sleep 30", nil)
		p.until("j", berth.Running)
		p.stop()
		time.Sleep(time.Minute) // it ends, and its report is taken
		p.run()
		p.until("j", berth.Completed)
		if v, _ := p.compute("cpu"); v.Properties.Properties.NodeStateCounts.IdleNodeCount != 1 {
			t.Errorf("%+v", v)
		}
		p.settle("its node goes", func() bool { v, _ := p.compute("cpu"); return v.live() == 0 })
		var took time.Duration
		for _, m := range p.meters() {
			if m.Job == "j" {
				took += m.To.Sub(m.From)
			}
		}
		if took < 29*time.Second || took > 31*time.Second {
			t.Errorf("a job of 30 s costs %v", took)
		}
	})
}

// TestNoGPUNoJob: on a machine without GPUs a job on a GPU size waits, says why, and costs nothing.
func TestNoGPUNoJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		synctest.Wait()
		p.stop()
		p.options.Machine.GPUs = 0
		p.run()
		if code, b := p.do("POST", p.ws+"/quotas", map[string]any{"size": "Standard_NC6s_v3", "vCPUs": 24}); code != http.StatusOK {
			t.Fatalf("%d %s", code, b)
		}
		p.clusterOf("gpus", 1, 2, map[string]any{"vmSize": "Standard_NC6s_v3"})
		p.on("gpus", "train", "true", nil)
		time.Sleep(time.Hour)
		if s, st := p.job("train"); s != berth.Queued || !strings.Contains(st.Reason, "this machine has no GPUs, and a node of this size needs 1") {
			t.Errorf("it is %s: %s", s, st.Reason)
		}
		if v, _ := p.compute("gpus"); v.live() != 0 || len(p.meters()) != 0 {
			t.Errorf("%d nodes, meters %v", v.live(), p.meters())
		}
	})
}
