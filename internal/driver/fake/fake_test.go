package fake_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/fake"
)

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Fixture {
		d := fake.New(fake.Options{Gangs: 4})
		t.Cleanup(func() { d.Close() })
		dir, n := t.TempDir(), 0
		return drivertest.Fixture{Driver: d, Launch: func(command string) berth.Launch {
			n++
			id := berth.TaskID(fmt.Sprintf("job-%d.1", n))
			return berth.Launch{Task: id, Command: command, LogFile: filepath.Join(dir, string(id))}
		}}
	})
}

func TestTurns(t *testing.T) {
	drivertest.Turns(t, func(t *testing.T, n int) drivertest.Array {
		d := fake.New(fake.Options{Turns: "all"})
		t.Cleanup(func() { d.Close() })
		a := drivertest.Array{Driver: d, Name: "all"}
		for i := range n {
			a.Tasks = append(a.Tasks, berth.TaskID(fmt.Sprintf("job-%d.1", i)))
			h, err := d.Start(t.Context(), berth.Launch{Task: a.Tasks[i], Command: "forever"})
			if err != nil {
				t.Fatal(err)
			}
			a.Handles = append(a.Handles, h)
		}
		return a
	})
}

func TestScale(t *testing.T) {
	make := func(t *testing.T) (*fake.Driver, drivertest.Fixture) {
		d := fake.New(fake.Options{Scales: true, Boot: time.Millisecond})
		t.Cleanup(func() { d.Close() })
		n := 0
		return d, drivertest.Fixture{
			Driver: d,
			Launch: func(command string) berth.Launch {
				n++
				return berth.Launch{Task: berth.TaskID(fmt.Sprintf("job-%d.1", n)), Command: command, Node: "first"}
			},
			Kill: func(_ testing.TB, node string) { d.KillNode(node) },
		}
	}
	drivertest.Scale(t, func(t *testing.T) drivertest.Fixture {
		_, f := make(t)
		return f
	})
	drivertest.Run(t, func(t *testing.T) drivertest.Fixture {
		d, f := make(t)
		if err := d.AddNode(t.Context(), driver.NodeSpec{Name: "first"}); err != nil {
			t.Fatal(err)
		}
		return f
	})
}

// TestNodes makes and loses nodes on a bubble's clock.
func TestNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reported := 0
		d := fake.New(fake.Options{Scales: true, Boot: time.Minute, Report: func([]berth.Report) { reported++ }})
		defer d.Close()
		began := time.Now()
		if err := d.AddNode(t.Context(), driver.NodeSpec{Name: "a"}); err != nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.AddNode(short, driver.NodeSpec{Name: "b"}); berth.CodeOf(err) != berth.Unavailable {
			t.Errorf("%v", err)
		}
		for _, id := range []berth.TaskID{"k.1", "l.1"} {
			if _, err := d.Start(t.Context(), berth.Launch{Task: id, Node: "a", Command: "forever"}); err != nil {
				t.Fatal(err)
			}
		}
		if reported != 2 || d.RunningOn("a") != 2 {
			t.Errorf("%d reports, %d run", reported, d.RunningOn("a"))
		}
		d.KillNode("a")
		all, err := d.Observe(t.Context())
		if err != nil || len(all) != 2 || all[0].Exit == nil || all[0].Exit.Cause != "lost" || reported != 2 {
			t.Errorf("%+v, %v, %d reports", all, err, reported)
		}
		d.DropNode("a")
		if all, err := d.Observe(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("%+v, %v", all, err)
		}
		if _, err := d.Start(t.Context(), berth.Launch{Task: "m.1", Node: "a"}); berth.CodeOf(err) != berth.NotFound {
			t.Errorf("%v", err)
		}
	})
}

// TestClock runs an hour's tasks on a bubble's clock, and checks what their runners would report.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports []berth.Report
		d := fake.New(fake.Options{
			Outcome: func(l berth.Launch) fake.Outcome {
				if l.Job == "refused" {
					return fake.Outcome{Refuse: berth.Errorf(berth.Invalid, "no")}
				}
				return fake.Outcome{Queue: time.Minute, Run: time.Hour, Exit: berth.Exit{Code: 2}}
			},
			Report: func(rs []berth.Report) { reports = append(reports, rs...) },
		})
		defer d.Close()
		began := time.Now()
		if _, err := d.Start(t.Context(), berth.Launch{Task: "r.1", Job: "refused"}); berth.CodeOf(err) != berth.Invalid {
			t.Errorf("%v", err)
		}
		for _, id := range []berth.TaskID{"a.1", "b.1", "c.1"} {
			if _, err := d.Start(t.Context(), berth.Launch{Task: id}); err != nil {
				t.Fatal(err)
			}
		}
		d.Finish("b.1", berth.Exit{Code: 9})
		d.Lose("c.1")
		if d.Running() != 1 {
			t.Errorf("%d run", d.Running())
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		all, err := d.Observe(t.Context())
		if err != nil || len(all) != 2 || all[0].Exit.Code != 2 || all[1].Exit.Code != 9 {
			t.Errorf("%+v, %v", all, err)
		}
		last := reports[len(reports)-1]
		if last.Task != "a.1" || last.Times.Ended.Sub(began) != time.Hour+time.Minute || last.Times.Started.Sub(began) != time.Minute {
			t.Errorf("%+v", last)
		}
		d.Break("observe", berth.Errorf(berth.Unavailable, "down"))
		if _, err := d.Observe(t.Context()); berth.CodeOf(err) != berth.Unavailable {
			t.Errorf("%v", err)
		}
		if diff := cmp.Diff([]berth.TaskID{"a.1", "b.1", "c.1"}, d.Starts()); diff != "" {
			t.Error(diff)
		}
	})
}
