package control_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/berthml/berth"
)

func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.submit("a", "forever")
		p.submit("b", "true")
		p.until("a", berth.Running)
		p.stop()
		p.submit("c", "true") // while no loop runs
		p.driver.Finish(p.task("a"), berth.Exit{})
		synctest.Wait()
		p.run()
		for _, name := range []string{"a", "b", "c"} {
			p.until(name, berth.Completed)
		}
		if got := p.started(); got != "a b c" {
			t.Errorf("started %s", got)
		}
	})
}

// TestTakeUpWithoutDatabase: a task that was placed and not started when the loops ended is started
// when they begin again, also when the database is away just when it is taken up.
func TestTakeUpWithoutDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.driver.Break("start", berth.Errorf(berth.Unavailable, "it is away"))
		p.submit("a", "true")
		p.until("a", berth.Preparing)
		p.stop()
		p.driver.Break("start", nil)
		p.failing = true
		p.run()
		p.until("a", berth.Completed)
	})
}

// TestRestartWithQueue: what waited when the loops ended, and nothing else happens, runs when they
// begin again.
func TestRestartWithQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.submit("a", "forever")
		p.submit("b", "true")
		p.submit("c", "true")
		p.until("a", berth.Running)
		p.until("c", berth.Queued)
		p.stop()
		p.driver.Finish(p.task("a"), berth.Exit{})
		synctest.Wait()
		p.run()
		p.until("b", berth.Completed)
		p.until("c", berth.Completed)
	})
}

// TestOrderAfterRestart: jobs that wait keep their order, also those that were taken up together.
func TestOrderAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.submit("first", "forever")
		p.until("first", berth.Running)
		want := "first"
		p.stop()
		for i := range 20 {
			name := fmt.Sprint("j", i)
			p.submit(name, "true")
			want += " " + name
		}
		p.run() // takes up all of them at once
		p.until("j19", berth.Queued)
		p.stop()
		p.run()
		p.driver.Finish(p.task("first"), berth.Exit{})
		p.until("j19", berth.Completed)
		if got := p.started(); got != want {
			t.Errorf("started %s", got)
		}
	})
}
