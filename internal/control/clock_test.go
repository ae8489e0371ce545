package control_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// jumps are by how much the wall clock is set in these tests.
var jumps = []time.Duration{7 * time.Hour, -time.Hour, -40 * 24 * time.Hour}

func eachJump(t *testing.T, f func(t *testing.T, p *fixture, d time.Duration)) {
	for _, d := range jumps {
		t.Run(d.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := build(t, 2)
				if code, b := p.do("PUT", "/berth/v1/sizes/Standard_DS3_v2", map[string]any{"price": 3.6}); code >= 300 {
					t.Fatalf("%d %s", code, b)
				}
				f(t, p, d)
			})
		})
	}
}

// jump sets the wall clock.
func (p *fixture) jump(d time.Duration) { p.set.Add(int64(d)) }

// metered is what was written down, by the job, "" for the node.
func (p *fixture) metered() map[string]berth.Meter {
	p.t.Helper()
	out := map[string]berth.Meter{}
	err := p.db.View(p.t.Context(), func(tx *store.Tx) error {
		docs, err := tx.All(store.Query{Workspace: space.Key(), Kind: "meters"})
		for _, d := range docs {
			var m berth.Meter
			if err := json.Unmarshal(d.Own, &m); err != nil {
				return err
			}
			if m.To.Before(m.From) {
				p.t.Errorf("meter %s ends before it begins: %+v", d.Name, m)
			}
			out[m.Job] = m
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// spent is what the workspace spent in all, what lives included.
func (p *fixture) spent() (s berth.Spending) {
	p.t.Helper()
	code, b := p.do("GET", p.ws+"/cost?since=1990-01-01T00:00:00Z&by=job", nil)
	if err := json.Unmarshal(b, &s); code != http.StatusOK || err != nil {
		p.t.Fatalf("%d %v in %s", code, err, b)
	}
	return s
}

// inOrder checks that no phase of a job took less than nothing.
func inOrder(t *testing.T, w berth.Waterfall) {
	t.Helper()
	last := w.Submitted
	for i, at := range []time.Time{w.Placed, w.Staging, w.Environment, w.Started, w.Uploading, w.Ended} {
		if at.IsZero() {
			continue
		}
		if at.Before(last) {
			t.Errorf("phase %d begins %s before the one before: %+v", i, last.Sub(at), w)
		}
		last = at
	}
}

// TestClockJumpIsNotCharged: a job of two minutes costs two minutes whatever becomes of the clock
// meanwhile, and says so.
func TestClockJumpIsNotCharged(t *testing.T) {
	eachJump(t, func(t *testing.T, p *fixture, d time.Duration) {
		p.clusterOf("cpu", 0, 1, nil)
		p.on("cpu", "first", "sleep 30", nil) // over when the clock is set, on a node that lives
		p.until("first", berth.Completed)
		p.on("cpu", "job", "sleep 120", nil)
		p.until("job", berth.Running)
		time.Sleep(time.Minute)
		p.jump(d)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if now := p.db.Now(); now.Sub(p.wall()).Abs() > time.Second {
			t.Errorf("the server's time is %s, the clock's %s", now, p.wall())
		}
		_, st := p.job("job")
		if ran := p.wall().Sub(st.Times.Started); (ran - 70*time.Second).Abs() > 5*time.Second {
			t.Errorf("after 70 s it has run for %s", ran)
		}
		inOrder(t, st.Times)
		st = p.until("job", berth.Completed)
		if took := st.Times.Ended.Sub(st.Times.Started); (took - 2*time.Minute).Abs() > 2*time.Second {
			t.Errorf("a job of 2 minutes took %s: %+v", took, st.Times)
		}
		inOrder(t, st.Times)
		m := p.metered()["job"]
		if took := m.To.Sub(m.From); (took - 2*time.Minute).Abs() > 5*time.Second {
			t.Errorf("a job of 2 minutes is charged %s", took)
		}
		for _, g := range p.spent().Groups {
			want := map[string]float64{"first": 0.03, "job": 0.12}[g.Job]
			if want > 0 && math.Abs(g.Cost-want) > 0.01 {
				t.Errorf("job %s costs %.3f, want %.3f", g.Job, g.Cost, want)
			}
		}
	})
}

// TestClockJumpWhileTheJobEnds: the first that is heard after the jump is that the job has ended.
func TestClockJumpWhileTheJobEnds(t *testing.T) {
	eachJump(t, func(t *testing.T, p *fixture, d time.Duration) {
		p.clusterOf("cpu", 0, 1, nil)
		p.on("cpu", "job", "forever", nil)
		p.until("job", berth.Running)
		time.Sleep(time.Until(time.Now().Add(2 * time.Minute)))
		p.jump(d)
		p.cluster.Finish(p.task("job"), berth.Exit{})
		st := p.until("job", berth.Completed)
		inOrder(t, st.Times)
		if took := st.Times.Ended.Sub(st.Times.Started); (took - 2*time.Minute).Abs() > 5*time.Second {
			t.Errorf("it took %s: %+v", took, st.Times)
		}
		m := p.metered()["job"]
		if took := m.To.Sub(m.From); (took - 2*time.Minute).Abs() > 5*time.Second {
			t.Errorf("it is charged %s", took)
		}
	})
}

// TestClockJumpKeepsIdleNodes: a node is given back when it was idle for 60 s, not by what the
// clock says.
func TestClockJumpKeepsIdleNodes(t *testing.T) {
	eachJump(t, func(t *testing.T, p *fixture, d time.Duration) {
		p.clusterOf("cpu", 0, 1, nil)
		p.on("cpu", "job", "true", nil)
		p.until("job", berth.Completed)
		idle := time.Now()
		time.Sleep(20 * time.Second)
		p.jump(d)
		time.Sleep(30 * time.Second)
		if v, _ := p.compute("cpu"); v.live() != 1 {
			t.Fatalf("the node is gone after %s", time.Since(idle))
		}
		p.settle("the node is given back", func() bool { v, _ := p.compute("cpu"); return v.live() == 0 })
		if took := time.Since(idle); took > 70*time.Second {
			t.Errorf("it was given back after %s", took)
		}
		m := p.metered()[""]
		if took := m.To.Sub(m.From); took > 75*time.Second {
			t.Errorf("a node of about 65 s is charged %s", took)
		}
	})
}

// TestClockJumpBudgets: a budget is spent by what runs, not by the clock, also over the end of a
// month.
func TestClockJumpBudgets(t *testing.T) {
	eachJump(t, func(t *testing.T, p *fixture, d time.Duration) {
		defer p.watchBudgets()()
		if code, b := p.do("PUT", p.ws+"/budgets/workspace", map[string]any{"amount": 5, "period": "month"}); code >= 300 {
			t.Fatalf("budget: %d %s", code, b)
		}
		p.clusterOf("cpu", 0, 1, nil)
		p.on("cpu", "job", "forever", nil)
		p.until("job", berth.Running)
		time.Sleep(1000 * time.Second) // 1.00 USD
		p.jump(d)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if b := p.standing("workspace"); math.Abs(b.Spent-1.01) > 0.03 || b.State != "ok" {
			t.Errorf("after 1010 s of 3.60 USD an hour: %+v", b)
		}
		time.Sleep(1000 * time.Second)
		if s, _ := p.job("job"); s != berth.Running {
			t.Errorf("the job is %s", s)
		}
		p.cluster.Finish(p.task("job"), berth.Exit{})
		p.until("job", berth.Completed)
		if b := p.standing("workspace"); math.Abs(b.Spent-2.02) > 0.03 {
			t.Errorf("after 2020 s of 3.60 USD an hour: %+v", b)
		}
	})
}

// TestClockJumpTells: the jump is an event of the server and of what lives, once.
func TestClockJumpTells(t *testing.T) {
	eachJump(t, func(t *testing.T, p *fixture, d time.Duration) {
		p.submit("job", "forever")
		p.submit("over", "true")
		p.until("job", berth.Running)
		p.until("over", berth.Completed)
		p.jump(d)
		time.Sleep(time.Minute)
		synctest.Wait()
		for subject, want := range map[string]int{"jobs/job": 1, "jobs/over": 0} {
			n := 0
			for _, e := range p.events(subject) {
				if e.Type == berth.EventClock {
					n++
				}
			}
			if n != want {
				t.Errorf("%s was told %d times", subject, n)
			}
		}
		_, st := p.job("job")
		if ran := fmt.Sprint(p.wall().Sub(st.Times.Started).Round(5 * time.Second)); ran != "1m0s" {
			t.Errorf("after a minute it has run for %s", ran)
		}
	})
}
