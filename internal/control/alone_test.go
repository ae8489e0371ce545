package control_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
)

func (p *fixture) isolated(name string) {
	p.t.Helper()
	p.clusterOf(name, 0, 1, map[string]any{"vmSize": "Standard_F72s_v2", "scaleSettings": map[string]any{"minNodeCount": 0, "maxNodeCount": 1, "nodeIdleTimeBeforeScaleDown": "PT0S"}})
}

// TestTwoIsolated: two that each need the machine for themselves have it one after the other.
func TestTwoIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 0, 1, nil)
		p.isolated("a")
		p.isolated("b")
		p.on("cpu", "first", "sleep 20", nil)
		p.until("first", berth.Running)
		p.on("b", "bj", "sleep 20", nil)
		p.until("bj", berth.Queued)
		time.Sleep(time.Second)
		p.on("a", "aj", "sleep 20", nil)
		p.on("", "here", "sleep 1", nil)
		p.until("bj", berth.Completed) // it came first
		if s, st := p.job("here"); s != berth.Queued || !strings.Contains(st.Reason, "isolated node of") {
			t.Errorf("a local job is %s: %s", s, st.Reason)
		}
		p.until("aj", berth.Completed)
		p.until("here", berth.Completed)
	})
}

// TestIsolatedWithoutHope: nothing is held back for a node that needs the machine for itself while
// there are nodes that stay.
func TestIsolatedWithoutHope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("keeps", 1, 2, nil)
		p.settle("a node", func() bool {
			v, _ := p.compute("keeps")
			return v.Properties.Properties.NodeStateCounts.IdleNodeCount == 1
		})
		p.isolated("alone")
		p.on("alone", "waits", "sleep 20", nil)
		p.settle("it says why", func() bool { _, st := p.job("waits"); return strings.Contains(st.Reason, "keeps at least 1 node") })
		p.on("keeps", "a", "sleep 5", nil)
		p.on("keeps", "b", "sleep 5", nil)
		p.on("", "here", "sleep 1", nil)
		for _, name := range []string{"a", "b", "here"} {
			p.until(name, berth.Completed)
		}
		if s, st := p.job("waits"); s != berth.Queued {
			t.Errorf("it is %s: %s", s, st.Reason)
		}
		p.clusterOf("keeps", 0, 2, nil)
		p.until("waits", berth.Running)
		time.Sleep(time.Second)
		if v, _ := p.compute("keeps"); v.live() != 0 {
			t.Errorf("%d nodes beside it", v.live())
		}
	})
}
