package control_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/control"
)

// limit sets a limit of the workspace for the family of the fixture's clusters.
func (p *fixture) limit(vcpus int, expires time.Time) {
	p.t.Helper()
	ask := map[string]any{"size": "Standard_DS3_v2", "vCPUs": vcpus}
	if !expires.IsZero() {
		ask["expires"] = expires
	}
	if code, b := p.do("POST", p.ws+"/quotas", ask); code != http.StatusOK {
		p.t.Fatalf("%d %s", code, b)
	}
}

// TestLimitEnds: when a limit ends nothing else happens, and what waited for that begins.
func TestLimitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 0, 2, nil)
		p.limit(8, time.Time{})
		p.limit(0, time.Now().Add(time.Hour))
		p.on("cpu", "j", "true", nil)
		p.settle("it says why", func() bool { _, st := p.job("j"); return strings.Contains(st.Reason, "limit") })
		time.Sleep(59 * time.Minute)
		if s, _ := p.job("j"); s != berth.Queued {
			t.Errorf("it is %s before its time", s)
		}
		time.Sleep(time.Minute)
		p.until("j", berth.Completed)
	})
}

// TestLimitSaysHowMuch: who needs more nodes than a limit allows is told how much to ask for: all
// of them.
func TestLimitSaysHowMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.limit(8, time.Time{}) // two nodes
		p.clusterOf("cpu", 4, 4, nil)
		p.settle("it says why there are not more", func() bool {
			v, _ := p.compute("cpu")
			return strings.Contains(v.Properties.Berth.Short, "berth quota request --family standardDSv2Family --vcpus 16`")
		})
	})
}

// TestLimitEndIsTold: the end of a limit is an event, once, also when no server was there when it
// came.
func TestLimitEndIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		loop := func() (stop func()) {
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- control.New(p.options).Limits(ctx) }()
			return func() {
				cancel()
				if err := <-done; err != nil {
					t.Errorf("limits ended: %v", err)
				}
			}
		}
		told := func() (n int, last string) {
			for _, e := range p.events("quotas/limit") {
				if strings.Contains(e.Reason, "has ended") {
					n, last = n+1, e.Reason
				}
			}
			return n, last
		}
		stop := loop()
		p.limit(8, time.Time{})
		p.limit(16, time.Now().Add(time.Hour))
		time.Sleep(time.Hour - time.Second)
		synctest.Wait()
		if n, last := told(); n != 0 {
			t.Errorf("told %q too early", last)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n, last := told(); n != 1 || !strings.Contains(last, "16 vCPUs, has ended; it is 8 vCPUs again") {
			t.Errorf("told %d times: %q", n, last)
		}
		p.limit(4, time.Now().Add(time.Minute))
		stop()
		time.Sleep(time.Hour)
		defer loop()()
		synctest.Wait()
		if n, last := told(); n != 2 || !strings.Contains(last, "4 vCPUs, has ended; it is 8") {
			t.Errorf("told %d times: %q", n, last)
		}
		time.Sleep(48 * time.Hour)
		if n, _ := told(); n != 2 {
			t.Errorf("told %d times", n)
		}
	})
}
