package devbox_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/devbox"
)

func TestNodeCannotBeHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t)
		p.driver.Break("add node", berth.Errorf(berth.Invalid, "no such processor"))
		p.made("box", nil)
		p.reaches("box", "CreateFailed")
		p.until("the record goes", func() bool { _, records := p.nodes(); return len(records) == 0 })
		if got := p.op("put", "box"); !strings.Contains(got, "no such processor") || !strings.HasPrefix(got, "Failed") {
			t.Errorf("the creation: %s", got)
		}
		p.driver.Break("add node", berth.Errorf(berth.Unavailable, "busy"))
		p.action("box", "start", nil)
		time.Sleep(2 * time.Minute)
		if got := p.op("start", "box"); got != "InProgress" {
			t.Errorf("while the provider is away: %s", got)
		}
		p.driver.Break("add node", nil)
		p.until("start", func() bool { return p.op("start", "box") == "Succeeded" })
	})
}

func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t)
		p.options.Admit = devbox.Admission{QuotaDefault: 6}.Admit
		p.stop()
		p.run()
		p.made("one", nil) // 4 vCPUs
		p.reaches("one", "Running")
		p.made("two", nil)
		p.reaches("two", "CreateFailed")
		if v, _ := p.show("two"); !strings.Contains(v.Properties.Berth.Reason, "its node is not available") {
			t.Errorf("%+v", v)
		}
		p.action("one", "stop", nil)
		p.reaches("one", "Stopped")
		p.action("two", "start", nil)
		p.reaches("two", "Running")
	})
}

// TestBudget: an instance stops when the budget that pays for it is used up, and does not start
// before it has something again.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- p.jobs.Budgets(ctx) }()
		defer func() { cancel(); <-done }()
		if code, b := p.as("root", auth.Admin, "PUT", "/berth/v1/sizes/Standard_DS3_v2", map[string]any{"price": 3.6}); code >= 300 {
			t.Fatalf("%d %s", code, b)
		}
		budget := func(amount float64) {
			t.Helper()
			if code, b := p.as("root", auth.Admin, "PUT", p.ws+"/budgets/workspace", map[string]any{"amount": amount, "period": "total"}); code >= 300 {
				t.Fatalf("%d %s", code, b)
			}
		}
		p.of("box").seen(devbox.Signal{Name: "kernels", Busy: true, Why: "a notebook kernel is busy (python3)"})
		p.made("box", nil)
		p.reaches("box", "Running")
		budget(3.6)
		time.Sleep(58 * time.Minute)
		if got := p.state("box"); got != "Running" {
			t.Fatalf("before the budget is used up it is %s", got)
		}
		time.Sleep(2 * time.Minute)
		p.reaches("box", "Stopped")
		const why = "the workspace's budget of 3.60 USD is used up"
		v, _ := p.show("box")
		if op := v.Properties.Properties.LastOperation; op.Trigger != "Budget" || op.Name != "Stop" || op.Status != "Succeeded" || v.Properties.Berth.Reason != why {
			t.Errorf("%+v: %s", op, v.Properties.Berth.Reason)
		}
		if _, b := p.do("GET", p.ws+"/computes/box/explain", nil); !strings.Contains(string(b), "berth budget list") || strings.Contains(string(b), "compute start") {
			t.Errorf("what to do is in %s", b)
		}
		p.action("box", "start", nil)
		p.until("refused", func() bool {
			v, _ := p.show("box")
			return v.Properties.Properties.State == "Stopped" && strings.HasSuffix(v.Properties.Berth.Reason, "is not available: "+why)
		})
		budget(36)
		time.Sleep(time.Second)
		p.action("box", "start", nil)
		p.reaches("box", "Running")
	})
}
