package control_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// hold keeps every update waiting until the function it returns is called: then they run in the
// order in which they came.
func (p *fixture) hold() (release func()) {
	held, let := make(chan struct{}), make(chan struct{})
	go func() {
		_ = p.db.Update(p.t.Context(), func(*store.Tx) error {
			select {
			case <-held: // it is run again
			default:
				close(held)
			}
			<-let
			return nil
		})
	}()
	<-held
	return func() { close(let) }
}

// ask sends a request that waits for the hold, behind those that wait already.
func (p *fixture) ask(method, path string, body any, want int) {
	go func() {
		if code, b := p.do(method, path, body); code != want {
			p.t.Errorf("%s %s: %d %s", method, path, code, b)
		}
	}()
	synctest.Wait()
}

// TestDeleteWhileResizing: what somebody asks of a cluster in the moment in which the loop writes
// down its size is not forgotten.
func TestDeleteWhileResizing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 0, 1, nil)
		p.on("cpu", "a", "true", nil)
		p.until("a", berth.Completed)
		release := p.hold()
		p.ask("DELETE", p.ws+"/computes/cpu", nil, http.StatusAccepted)
		time.Sleep(2 * time.Minute) // the idle time is over: the loop wants to give the node back
		release()
		p.settle("deleted", func() bool { _, there := p.compute("cpu"); return !there })
	})
}

// TestEvictWhilePlacing: an eviction that is asked for in the moment in which a job is placed hits
// that job.
func TestEvictWhilePlacing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 1, 1, nil)
		p.settle("a node", func() bool {
			v, _ := p.compute("cpu")
			return v.Properties.Properties.NodeStateCounts.IdleNodeCount == 1
		})
		// The job waits for ports, so that the loop places it when its own clock says so, and not
		// when it is told of something.
		var taken []net.Listener
		for port := 20000; port < 32000; port += 64 {
			if l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port)); err == nil {
				taken = append(taken, l)
			}
		}
		free := func() {
			for _, l := range taken {
				l.Close()
			}
		}
		defer free()
		p.on("cpu", "j", "forever", map[string]any{"distribution": map[string]any{"distributionType": "PyTorch"}})
		p.settle("it waits for ports", func() bool { _, st := p.job("j"); return strings.Contains(st.Reason, "no ports are free") })
		release := p.hold()
		p.ask("POST", p.ws+"/computes/cpu/evict", map[string]any{"simulate": true}, http.StatusOK)
		free()
		time.Sleep(5 * time.Second)
		release()
		p.settle("second attempt", func() bool { s, st := p.job("j"); return s == berth.Running && st.Attempt == 2 })
	})
}

// TestKilledBeforeEvicting: a server that ends after somebody asked for an eviction carries it out
// when it is back.
func TestKilledBeforeEvicting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("spot", 0, 2, map[string]any{"vmPriority": "LowPriority"})
		p.on("spot", "j", "forever", nil)
		p.until("j", berth.Running)
		node := p.tasks("j")[0].Node
		p.stop()
		if code, b := p.do("POST", p.ws+"/computes/spot/evict", map[string]any{}); code != http.StatusOK || !strings.Contains(string(b), node) {
			t.Fatalf("%d %s", code, b)
		}
		p.run()
		p.settle("second attempt", func() bool { s, st := p.job("j"); return s == berth.Running && st.Attempt == 2 })
	})
}

// TestKilledWhileStarting: a task that was evicted before its start was known is stopped by the
// next server.
func TestKilledWhileStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("spot", 1, 2, map[string]any{"vmPriority": "LowPriority"})
		p.settle("a node", func() bool {
			v, _ := p.compute("spot")
			return v.Properties.Properties.NodeStateCounts.IdleNodeCount == 1
		})
		p.cluster.Break("start", berth.Errorf(berth.Unavailable, "it is slow"))
		p.on("spot", "j", "forever", nil)
		p.settle("placed", func() bool { ts := p.tasks("j"); return len(ts) == 1 && ts[0].State == berth.TaskPlaced })
		p.do("POST", p.ws+"/computes/spot/evict", map[string]any{})
		p.settle("evicted", func() bool { return p.tasks("j")[0].Evict })
		p.stop()
		p.cluster.Break("start", nil)
		p.run()
		p.settle("second attempt", func() bool { s, st := p.job("j"); return s == berth.Running && st.Attempt == 2 })
		p.settle("the reclaimed node is gone", func() bool {
			v, _ := p.compute("spot")
			return v.Properties.Properties.NodeStateCounts.PreemptedNodeCount == 0
		})
	})
}

// TestEndedBeforeStarted: a task whose start was not answered, and that its host knows nevertheless
// and says has ended, is not started again once the host has been made to forget it.
func TestEndedBeforeStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 2)
		p.submit("other", "forever") // so that the target is looked at
		p.until("other", berth.Running)
		p.driver.Break("answer", berth.Errorf(berth.Unavailable, "the connection was cut"))
		p.submit("j", "true")
		p.until("j", berth.Completed)
		time.Sleep(10 * time.Minute) // with many tries and many sweeps
		if got := p.started(); got != "other j" {
			t.Errorf("started %s", got)
		}
		p.driver.Break("answer", nil)
		p.settle("it is forgotten", func() bool { _, known := p.driver.Launch(p.task("j")); return !known })
	})
}
