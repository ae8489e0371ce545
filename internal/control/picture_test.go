package control_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/fake"
	"github.com/berthml/berth/internal/store"
)

// agree fails the test when the loop decides by another picture of a pool than plans and
// explanations.
func (p *fixture) agree(when string) {
	p.t.Helper()
	synctest.Wait()
	diff, err := p.control.PicturesDiffer(p.t.Context(), space.Key())
	if err != nil {
		p.t.Fatalf("%s: %v", when, err)
	}
	if diff != "" {
		p.t.Errorf("%s: %s", when, diff)
	}
}

// TestLoopAndPlanSeeOnePool: what the loop tells the scheduler and the autoscaler of a pool is what
// plans and explanations tell them, and they decide the same, whatever state the pool is in.
func TestLoopAndPlanSeeOnePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := buildOn(t, berth.LocalTerms{Slots: 2, PerUser: 1})
		synctest.Wait()
		p.stop()
		far := fake.New(fake.Options{Report: func(rs []berth.Report) { p.reports.Go(func() { p.report(rs) }) }})
		defer far.Close()
		p.options.Targets = fake.Registry(map[string]driver.Driver{"local": p.driver, "amlcompute": p.cluster, "agent": far}, p.options.Log)
		p.run()
		defer p.watchBudgets()()
		p.agree("at the start")

		for i := range 3 {
			p.submit(fmt.Sprint("here", i), "forever")
		}
		p.until("here0", berth.Running)
		p.agree("with a user at the limit of the machine")

		insert(t, p, "laptop")
		p.on("laptop", "away", "forever", nil)
		p.agree("with a machine that has not joined")
		p.machineIs("laptop", berth.AttachedState{TokenHash: "x", Machine: "m", Host: "h", Connected: true, Session: "1", Since: time.Now(), Slots: 3})
		p.until("away", berth.Running)
		p.agree("with a machine that has three slots")

		if code, b := p.do("PUT", "/berth/v1/sizes/Standard_DS3_v2", map[string]any{"price": 3.6, "lowPrice": 3.6}); code >= 300 {
			t.Fatalf("%d %s", code, b)
		}
		p.clusterOf("cpu", 1, 3, map[string]any{"berth.jobs_per_node": "2"})
		p.limitOf("bob", 2) // half a node
		p.on("cpu", "gang", "forever", map[string]any{"resources": map[string]any{"instanceCount": 2}})
		p.agree("while nodes start")
		p.until("gang", berth.Running)
		p.user = "bob"
		p.on("cpu", "b1", "forever", nil)
		p.on("cpu", "b2", "forever", nil)
		p.on("cpu", "wide", "forever", map[string]any{"resources": map[string]any{"instanceCount": 3}})
		p.until("b1", berth.Running)
		p.user = "ann"
		p.on("cpu", "large", "true", map[string]any{"resources": map[string]any{"instanceCount": 3}})
		p.until("large", berth.Queued)
		p.on("cpu", "small", "true", nil)
		p.until("small", berth.Completed)
		p.agree("with a user at a limit, a gang that waits for nodes, and an idle node")

		p.budget("user:ann", 0.001)
		p.until("gang", berth.Canceled)
		p.agree("with a budget of the owner that is used up")
		p.budget("workspace", 0.001)
		p.until("b1", berth.Canceled)
		p.agree("with the budget of the workspace used up")
		if code, b := p.do("DELETE", p.ws+"/computes/laptop?drain=true", nil); code != http.StatusAccepted {
			t.Fatalf("%d %s", code, b)
		}
		p.agree("with a machine that is being detached")
	})
}

// TestExplainKnowsThatANodeGoes: an explanation says that the idle nodes of a cluster that is being
// deleted, or of which a used up budget pays, go now, as the loop decides, and not when their idle
// time is over.
func TestExplainKnowsThatANodeGoes(t *testing.T) {
	goes := func(t *testing.T, p *fixture) (all []time.Time) {
		t.Helper()
		_, b := p.do("GET", p.ws+"/computes/cpu/explain", nil)
		var v berth.ComputeExplanation
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatalf("%v in %s", err, b)
		}
		for _, n := range v.Nodes {
			all = append(all, n.Goes)
		}
		return all
	}
	for name, change := range map[string]func(p *fixture){
		"deleted": func(p *fixture) { p.ask("DELETE", p.ws+"/computes/cpu", nil, http.StatusAccepted) },
		"unpaid": func(p *fixture) {
			p.ask("PUT", "/berth/v1/sizes/Standard_DS3_v2", map[string]any{"price": 3.6, "lowPrice": 3.6}, http.StatusCreated)
			p.budget("workspace", 0.001)
			stop := p.watchBudgets() // without the loop that gives nodes back
			time.Sleep(time.Minute)
			stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := build(t, 1)
				p.clusterOf("cpu", 2, 4, nil)
				p.settle("two nodes are idle", func() bool {
					v, _ := p.compute("cpu")
					return v.Properties.Properties.NodeStateCounts.IdleNodeCount == 2
				})
				p.on("cpu", "work", "sleep 1", nil)
				p.until("work", berth.Completed)
				p.stop()
				change(p)
				now := p.db.Now()
				all := goes(t, p)
				if len(all) != 2 || !all[0].Equal(now) || !all[1].Equal(now) {
					t.Errorf("nodes go at %v, and it is %v", all, now)
				}
				p.run()
				p.settle("they are gone", func() bool { v, _ := p.compute("cpu"); return v.live() == 0 })
			})
		})
	}
}

// TestUnreadableNode: a node whose document cannot be read is left alone by plans and explanations
// as by the loop.
func TestUnreadableNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 1, 2, nil)
		p.settle("a node is idle", func() bool {
			v, _ := p.compute("cpu")
			return v.Properties.Properties.NodeStateCounts.IdleNodeCount == 1
		})
		err := p.db.Update(t.Context(), func(tx *store.Tx) error {
			return tx.Insert(&store.Doc{Workspace: space.Key(), Kind: "nodes", Name: "odd", Parent: "cpu", Body: json.RawMessage("{}"), Own: json.RawMessage("5")})
		})
		if err != nil {
			t.Fatal(err)
		}
		p.ask("GET", p.ws+"/computes/cpu/explain", nil, http.StatusOK)
		p.ask("POST", p.ws+"/jobs/j/plan", map[string]any{"properties": map[string]any{"jobType": "Command", "command": "true", "computeId": "cpu"}}, http.StatusOK)
		p.agree("with a node that cannot be read")
		p.on("cpu", "j", "true", nil)
		p.until("j", berth.Completed)
	})
}
