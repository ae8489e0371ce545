package control_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

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

// TestTakeUpAgain: a task that cannot be taken up now holds up no other one, neither inherited ones
// nor new ones, and is taken up later, once.
func TestTakeUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 3)
		p.driver.Break("start", berth.Errorf(berth.Unavailable, "it is away"))
		p.submit("a", "true")
		p.submit("b", "true")
		p.until("a", berth.Preparing)
		p.until("b", berth.Preparing)
		p.stop()
		p.driver.Break("start", nil)
		p.refused.Store(p.task("a"), true)
		p.run()
		p.until("b", berth.Completed)
		p.submit("c", "true")
		p.until("c", berth.Completed)
		if s, _ := p.job("a"); s != berth.Preparing {
			t.Errorf("a is %s", s)
		}
		p.refused.Delete(p.task("a"))
		p.until("a", berth.Completed)
		if got := p.started(); got != "b c a" {
			t.Errorf("started %s", got)
		}
	})
}

// TestEndsBeforeItIsTakenUp: what is left on its target of a task that ended before it could be
// taken up is removed.
func TestEndsBeforeItIsTakenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.driver.Break("start", berth.Errorf(berth.Unavailable, "it is away"))
		p.submit("a", "forever")
		p.until("a", berth.Preparing)
		p.stop()
		p.driver.Break("start", nil)
		id := p.task("a")
		p.refused.Store(id, true)
		if _, err := p.driver.Start(t.Context(), berth.Launch{Task: id, Command: "forever"}); err != nil {
			t.Fatal(err)
		}
		p.run()
		synctest.Wait()
		p.control.EndTask(t.Context(), id, berth.Exit{Code: -1, Cause: "lost", Reason: "nobody knows"})
		p.until("a", berth.Failed)
		time.Sleep(time.Minute)
		if all, err := p.driver.Observe(t.Context()); err != nil || len(all) > 0 {
			t.Errorf("left on its target: %+v, %v", all, err)
		}
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
