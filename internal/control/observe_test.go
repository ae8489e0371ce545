package control_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
)

// TestLostAmongMany: many tasks are looked at less often, but once one is missing it is looked for
// as soon as ever.
func TestLostAmongMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 600
		p := build(t, many)
		for i := range many {
			p.submit(fmt.Sprintf("j%d", i), "forever")
		}
		p.until(fmt.Sprintf("j%d", many-1), berth.Running)
		lost := p.task("j7")
		p.driver.Lose(lost)
		began := time.Now()
		p.until("j7", berth.Failed)
		// It is found missing after at most 15 seconds, and believed to be when it was missed three
		// times, 5 seconds apart.
		if took := time.Since(began); took > 26*time.Second {
			t.Errorf("found out after %v", took)
		}
	})
}

// TestEndWithoutReport: a task that has ended without a report ends as its target says: at once
// where no report can come any more, otherwise after it was seen so for a while.
func TestEndWithoutReport(t *testing.T) {
	for command, most := range map[string]time.Duration{"final": 5 * time.Second, "silent": 15 * time.Second} {
		t.Run(command, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := build(t, 4)
				began := time.Now()
				p.submit("good", command+"; sleep 1")
				p.submit("bad", command+"; sleep 1; exit 3")
				p.until("good", berth.Completed)
				if st := p.until("bad", berth.Failed); st.Reason == "" {
					t.Error("there is no reason")
				}
				if took := time.Since(began); took > most+time.Second {
					t.Errorf("ended after %v", took)
				}
			})
		})
	}
}

// TestWhyNotStarted: a task whose target does not take it says why, as its job does, and runs once
// it is taken.
func TestWhyNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 4)
		p.driver.Break("start", berth.Errorf(berth.Unavailable, "no space left on device"))
		p.submit("full", "sleep 1")
		p.settle("the reason", func() bool {
			tasks := p.tasks("full")
			_, st := p.job("full")
			return len(tasks) == 1 && strings.Contains(tasks[0].Why, "no space left on device") && st.Reason == tasks[0].Why
		})
		p.driver.Break("start", nil)
		p.until("full", berth.Completed)
	})
}
