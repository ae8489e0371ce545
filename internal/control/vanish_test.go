package control_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
)

// TestNodeVanishes takes nodes away behind the server's back, while it runs and while it does not:
// they are dropped, others are made, what had not begun is put back in the queue, and a command
// that ran is lost with the reason.
func TestNodeVanishes(t *testing.T) {
	for _, away := range []bool{false, true} {
		t.Run(map[bool]string{false: "while the server runs", true: "while it is stopped"}[away], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := build(t, 1)
				vanish := func(node string) {
					if away {
						p.stop()
					}
					p.cluster.DropNode(node)
					if away {
						p.run()
					}
				}
				p.clusterOf("cpu", 1, 1, nil)
				var idle string
				p.settle("a node is idle", func() bool {
					info, err := p.cluster.Probe(t.Context())
					v, _ := p.compute("cpu")
					if err != nil || len(info.Nodes) != 1 || v.Properties.Properties.NodeStateCounts.IdleNodeCount != 1 {
						return false
					}
					idle = info.Nodes[0].Name
					return true
				})
				vanish(idle)
				p.settle("another node is made", func() bool {
					info, err := p.cluster.Probe(t.Context())
					return err == nil && len(info.Nodes) == 1 && info.Nodes[0].Name != idle
				})
				p.settle("it is said that the node is gone", func() bool {
					for _, e := range p.events("computes/cpu") {
						if e.Reason == "node "+idle+" is gone: its machine no longer has it" {
							return true
						}
					}
					return false
				})

				p.on("cpu", "ran", "forever", nil)
				p.until("ran", berth.Running)
				at := p.tasks("ran")[0].Node
				vanish(at)
				if st := p.until("ran", berth.Failed); st.Exit.Cause != "lost" || st.Exit.Reason != "node "+at+" is gone: its machine no longer has it while the command ran" {
					t.Errorf("exit %+v", st.Exit)
				}
				p.on("cpu", "next", "true", nil)
				p.until("next", berth.Completed)
			})
		})
	}
}

// TestNodeTaken: a job whose node is taken away starts again on another, also if its command has
// ended and its outputs are being kept: what took the node may have ended the command too.
func TestNodeTaken(t *testing.T) {
	for name, state := range map[string]berth.TaskState{"running": berth.TaskRunning, "ending": berth.TaskEnding} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := build(t, 1)
				p.clusterOf("cpu", 0, 1, nil)
				p.on("cpu", "j", "forever", nil)
				p.until("j", berth.Running)
				first := p.tasks("j")[0]
				p.report([]berth.Report{{Task: first.ID, Seq: 100, At: time.Now(), State: state}})
				p.cluster.TakeNode(first.Node, "it was canceled there")
				p.settle("it starts again", func() bool { return len(p.tasks("j")) == 2 })
				if e := p.tasks("j")[0].Exit; e == nil || e.Cause != "evicted" || e.Reason != "node "+first.Node+" is gone: it was canceled there" {
					t.Errorf("exit %+v", e)
				}
				p.until("j", berth.Running)
			})
		})
	}
}

// TestPartialOutputs: when a task is lost, a warning names the attempt and the outputs of which
// something was uploaded.
func TestPartialOutputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.submit("some", "forever")
		p.until("some", berth.Running)
		id := p.task("some")
		p.report([]berth.Report{{Task: id, Seq: 100, At: time.Now(), State: berth.TaskRunning, Kept: []string{berth.OutputsFolder, "model"}}})
		p.driver.Lose(id)
		p.until("some", berth.Failed)
		p.submit("none", "forever")
		p.until("none", berth.Running)
		p.driver.Lose(p.task("none"))
		p.until("none", berth.Failed)
		for job, want := range map[string]string{
			"some": "./outputs, output model: partial, with the files that were uploaded before the task of attempt 1 ended",
			"none": "",
		} {
			var warnings []string
			for _, e := range p.events("jobs/" + job) {
				if e.Type == berth.EventJobWarning {
					warnings = append(warnings, e.Reason)
				}
			}
			if got := strings.Join(warnings, "\n"); got != want {
				t.Errorf("%s: %q", job, got)
			}
		}
	})
}

// TestStartOnVanishedNode finds out that a node is gone only when a task is to begin there: its job
// runs on another node.
func TestStartOnVanishedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 1, 1, nil)
		p.on("cpu", "before", "true", nil)
		p.until("before", berth.Completed)
		p.cluster.Break("probe", berth.Errorf(berth.Unavailable, "not now"))
		p.cluster.DropNode(p.tasks("before")[0].Node)
		p.on("cpu", "j", "true", nil)
		p.until("j", berth.Completed)
		if n := len(p.tasks("j")); n != 2 {
			t.Errorf("%d attempts", n)
		}
		if first := p.tasks("j")[0]; first.Exit == nil || first.Exit.Cause != "evicted" || !strings.Contains(first.Exit.Reason, "is gone") {
			t.Errorf("first attempt %+v", first.Exit)
		}
	})
}
