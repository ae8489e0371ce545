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

// limitOf sets a user's limit of vCPUs of the family of the fixture's clusters.
func (p *fixture) limitOf(user string, vcpus int) {
	p.t.Helper()
	if code, b := p.do("POST", p.ws+"/quotas", map[string]any{"size": "Standard_DS3_v2", "vCPUs": vcpus, "user": user}); code != http.StatusOK {
		p.t.Fatalf("%d %s", code, b)
	}
}

// runsOf is how many tasks of each user are on nodes of clusters.
func (p *fixture) runsOf(jobs ...string) map[string]int {
	out := map[string]int{}
	for _, name := range jobs {
		for _, t := range p.tasks(name) {
			if t.State != berth.TaskWaiting && t.State != berth.TaskDone {
				out[t.User]++
			}
		}
	}
	return out
}

// TestUserLimitHoldsOnNodesOfOthers: a user's jobs count against that user's limit wherever they
// run, also on a node that was made for somebody else; and the jobs of others on a node of theirs
// do not.
func TestUserLimitHoldsOnNodesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.limitOf("bob", 4) // one node
		p.clusterOf("cpu", 0, 3, nil)
		p.on("cpu", "first", "sleep 20", nil) // ann's, whose node is idle then
		p.until("first", berth.Running)
		p.user = "bob"
		p.on("cpu", "b1", "sleep 30", nil)
		p.until("b1", berth.Running)
		p.until("first", berth.Completed)
		p.on("cpu", "b2", "sleep 30", nil)
		p.settle("it says why it waits", func() bool {
			_, st := p.job("b2")
			return strings.Contains(st.Reason, "user bob's limit in workspace w of standardDSv2Family is 4 vCPUs, and the jobs that run leave too little of it")
		})
		_, plan := p.do("POST", p.ws+"/jobs/b3/plan", map[string]any{"properties": map[string]any{"jobType": "Command", "command": "true", "computeId": "cpu"}})
		if !strings.Contains(string(plan), `"verdict":"wait"`) || !strings.Contains(string(plan), "user bob's limit") {
			t.Errorf("a third one is planned as %s", plan)
		}
		p.user = "ann"
		p.on("cpu", "second", "true", nil) // it has room beside him
		p.until("second", berth.Completed)
		if n := p.runsOf("b1", "b2"); n["bob"] != 1 {
			t.Errorf("bob runs %d tasks", n["bob"])
		}
		p.until("b2", berth.Completed)
		_, b1 := p.job("b1")
		if _, b2 := p.job("b2"); b2.Times.Started.Before(b1.Times.Ended) {
			t.Error("b2 began before b1 had ended")
		}
		p.settle("nothing is kept for nobody", func() bool { v, _ := p.compute("cpu"); return v.live() == 0 })
	})
}

// TestUserLimitAcrossClusters: the end of a job on one cluster lets the same user's job on another
// begin, and a limit that is raised does.
func TestUserLimitAcrossClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.limitOf("bob", 4)
		p.clusterOf("one", 0, 2, nil)
		p.clusterOf("two", 1, 1, nil) // a node of ann's
		p.settle("it is there", func() bool { v, _ := p.compute("two"); return v.live() == 1 })
		p.user = "bob"
		p.on("one", "b1", "sleep 100", nil)
		p.until("b1", berth.Running)
		p.on("two", "b2", "sleep 10", nil)
		p.on("two", "b3", "sleep 10", nil)
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if n := p.runsOf("b1", "b2", "b3"); n["bob"] != 1 {
			t.Errorf("bob runs %d tasks", n["bob"])
		}
		p.user = "ann"
		p.limitOf("bob", 8)
		p.until("b2", berth.Running)
		p.until("b3", berth.Completed)
		p.limitOf("bob", 4)
		p.user = "bob"
		p.on("two", "b4", "true", nil)
		p.until("b4", berth.Completed)
		if _, b1 := p.job("b1"); b1.Times.Ended.IsZero() {
			t.Error("b4 began before b1 had ended")
		}
	})
}

// TestMinimumIsItsOwners: a node that a cluster keeps because of its minimum counts for who made
// the cluster, also when it was made for somebody else's job; that user's limit is free again for
// another cluster.
func TestMinimumIsItsOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.limitOf("bob", 4) // one node
		p.clusterOf("kept", 1, 2, nil)
		p.clusterOf("other", 0, 1, nil)
		p.on("kept", "first", "sleep 10", nil) // on ann's node
		p.until("first", berth.Running)
		p.user = "bob"
		p.on("kept", "b1", "sleep 30", nil) // on one of his own, which outlives hers: that is idle first
		p.until("b1", berth.Completed)
		p.settle("one node stays", func() bool { v, _ := p.compute("kept"); return v.live() == 1 })
		p.on("other", "b2", "true", nil)
		p.until("b2", berth.Completed)
	})
}

// TestLimitOfAUserOnNodesOfOthersIsFreed: a job that has no node because its user's limit is used
// on a node of somebody else begins when that use ends.
func TestLimitOfAUserOnNodesOfOthersIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.limitOf("bob", 4) // one node
		p.clusterOf("hers", 1, 1, nil)
		p.clusterOf("other", 0, 1, nil)
		p.settle("it is there", func() bool { v, _ := p.compute("hers"); return v.live() == 1 })
		p.user = "bob"
		p.on("hers", "b1", "sleep 30", nil)
		p.until("b1", berth.Running)
		p.on("other", "b2", "true", nil)
		p.settle("it says why it waits", func() bool { _, st := p.job("b2"); return strings.Contains(st.Reason, "cannot grow: user bob's limit") })
		p.until("b2", berth.Completed)
		_, b1 := p.job("b1")
		if _, b2 := p.job("b2"); b2.Times.Started.Before(b1.Times.Ended) {
			t.Error("b2 began before b1 had ended")
		}
	})
}

// TestNoUserRunsOverTheLimit: whatever users submit where, none of them ever has more tasks on
// nodes than the limit allows.
func TestNoUserRunsOverTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("a", 0, 4, nil)
		p.clusterOf("b", 1, 3, map[string]any{"berth.jobs_per_node": "2"})
		most := map[string]float64{"ann": 2, "bob": 1, "eve": 1.5} // nodes
		for user, n := range most {
			p.limitOf(user, int(4*n))
		}
		var jobs []string
		seed := uint32(1)
		random := func(n int) int { seed = seed*1664525 + 1013904223; return int(seed>>16) % n }
		check := func() {
			t.Helper()
			used := map[string]float64{}
			for _, j := range jobs {
				for _, task := range p.tasks(j) {
					if task.State != berth.TaskWaiting && task.State != berth.TaskDone {
						used[task.User] += map[string]float64{"a": 1, "b": 0.5}[task.Compute]
					}
				}
			}
			for user, n := range used {
				if n > most[user] {
					t.Fatalf("%s uses %v nodes of %v", user, n, most[user])
				}
			}
		}
		for i := range 30 {
			p.user = []string{"ann", "bob", "eve"}[random(3)]
			name := fmt.Sprint("j", i)
			more := map[string]any{}
			if random(5) == 0 && p.user == "ann" {
				more["resources"] = map[string]any{"instanceCount": 2}
			}
			p.on([]string{"a", "b"}[random(2)], name, fmt.Sprintf("sleep %d", 5+random(60)), more)
			jobs = append(jobs, name)
			time.Sleep(time.Duration(random(8000)) * time.Millisecond)
			synctest.Wait()
			check()
		}
		for range 2000 {
			left := 0
			for _, j := range jobs {
				if s, _ := p.job(j); !s.Terminal() {
					left++
				}
			}
			if check(); left == 0 {
				return
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		for _, j := range jobs {
			if s, st := p.job(j); !s.Terminal() {
				t.Errorf("%s is %s: %s", j, s, st.Reason)
			}
		}
		t.Fatal("they never end")
	})
}
