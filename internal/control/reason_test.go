package control_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
)

// TestReasonsFollowTheCluster: however many jobs wait, what each says of the cluster's limits is
// true when these have changed.
func TestReasonsFollowTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 0, 3, nil)
		p.on("cpu", "first", "forever", nil)
		p.until("first", berth.Running)
		const gangs = 80 // more than the scheduler looks at
		for i := range gangs {
			p.on("cpu", fmt.Sprint("g", i), "true", map[string]any{"resources": map[string]any{"instanceCount": 3}})
		}
		say := func(part string, want bool) func() bool {
			return func() bool {
				for i := range gangs {
					if _, st := p.job(fmt.Sprint("g", i)); strings.Contains(st.Reason, part) != want {
						return false
					}
				}
				return true
			}
		}
		p.settle("all wait", say("accepted", false))
		p.clusterOf("cpu", 0, 2, nil)
		p.settle("all say that they need more than there can be", say("at most 2", true))
		p.clusterOf("cpu", 0, 3, nil)
		p.settle("none says so", say("at most 2", false))
		p.do("POST", p.ws+"/jobs/first/cancel", nil)
		for i := range gangs {
			p.until(fmt.Sprint("g", i), berth.Completed)
		}
	})
}

// TestReasonsFollowQuotas: jobs that no quota lets run say how large it is now, all of them.
func TestReasonsFollowQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 0, 1, nil)
		p.limit(0, time.Time{})
		const jobs = 80 // more than the scheduler looks at
		for i := range jobs {
			p.on("cpu", fmt.Sprint("j", i), "true", nil)
		}
		for vcpus := range 3 {
			p.limit(vcpus, time.Time{})
			p.settle("all say so", func() bool {
				for i := range jobs {
					if _, st := p.job(fmt.Sprint("j", i)); !strings.Contains(st.Reason, fmt.Sprintf("is %d vCPU", vcpus)) {
						return false
					}
				}
				return true
			})
		}
		p.limit(4, time.Time{})
		for i := range jobs {
			p.until(fmt.Sprint("j", i), berth.Completed)
		}
	})
}

// TestSizeComesBack: a job that waits because its cluster's size is gone, or needs an approval,
// begins when that is over.
func TestSizeComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		box := map[string]any{"vCPUs": 1, "memoryGB": 1}
		size := func(restricted bool) {
			t.Helper()
			box["restricted"] = restricted
			if code, b := p.do("PUT", "/berth/v1/sizes/box", box); code != http.StatusCreated && code != http.StatusOK {
				t.Fatalf("%d %s", code, b)
			}
		}
		size(false)
		p.clusterOf("own", 0, 1, map[string]any{"vmSize": "box"})
		for _, gone := range []struct {
			name, why string
			do        func()
		}{
			{"deleted", "no longer known", func() { p.do("DELETE", "/berth/v1/sizes/box", nil) }},
			{"restricted", "approval", func() { size(true) }},
		} {
			gone.do()
			p.on("own", gone.name, "true", nil)
			p.settle("it says why", func() bool { _, st := p.job(gone.name); return strings.Contains(st.Reason, gone.why) })
			time.Sleep(time.Hour)
			size(false)
			p.until(gone.name, berth.Completed)
			p.settle("the node is given back", func() bool { v, _ := p.compute("own"); return v.live() == 0 })
		}
	})
}

// TestReasonFollowsTheRunner: what a runner says while it prepares a task, as that it waits for
// storage, is the job's reason at once.
func TestReasonFollowsTheRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.on("", "waits", "forever", nil)
		p.until("waits", berth.Running)
		const why = "input x is waited for: storage does not answer"
		p.report([]berth.Report{{Task: p.tasks("waits")[0].ID, State: berth.TaskRunning, Detail: why, Seq: 1 << 30, At: time.Now()}})
		p.settle("says why", func() bool { _, st := p.job("waits"); return st.Reason == why })
	})
}
