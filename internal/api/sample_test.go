package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/api"
	"github.com/berthml/berth/internal/filewatch"
	"github.com/berthml/berth/internal/store"
)

// tracked is a house with tasks that run, and their runners.
type tracked struct {
	*house
	seq int
	rev berth.Rev
}

func (x *tracked) task(id berth.TaskID) (t *berth.Task) {
	x.t.Helper()
	err := x.db.View(x.t.Context(), func(tx *store.Tx) (err error) {
		t, err = tx.Task(id)
		return err
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return t
}

func (x *tracked) update(fn func(*store.Tx) error) {
	x.t.Helper()
	if err := x.db.Update(x.t.Context(), fn); err != nil {
		x.t.Fatal(err)
	}
}

// report sends a report with a sample, and is what the answer says of stopping.
func (x *tracked) report(id berth.TaskID, memory int64, change func(*berth.Report)) []any {
	x.t.Helper()
	x.seq++
	r := berth.Report{
		Task: id, Token: x.auth.Keys.TaskToken(id, time.Now().Add(time.Hour)), Seq: x.seq, At: time.Now(), State: berth.TaskRunning, Phase: "running",
		Usage: &berth.Usage{MemoryBytes: memory},
	}
	if change != nil {
		change(&r)
	}
	stop, _ := x.as(r.Token, "POST", "/runner/v1/reports", []berth.Report{r}).want(200).at("stop").([]any)
	return stop
}

// peaks is what the store knows each task used at most.
func (x *tracked) peaks(want ...int64) {
	x.t.Helper()
	if diff := cmp.Diff(want, []int64{x.task("a.1").Usage.MemoryBytes, x.task("b.1").Usage.MemoryBytes}); diff != "" {
		x.t.Error(diff)
	}
}

// told is the samples that became events since it was last asked, in the order of their figures.
func (x *tracked) told(want ...int64) {
	x.t.Helper()
	var got []int64
	err := x.db.View(x.t.Context(), func(tx *store.Tx) error {
		all, err := tx.Events(store.EventQuery{Workspace: workspace.Key(), From: x.rev})
		for _, e := range all {
			x.rev = e.Rev
			var v struct{ Usage berth.Usage }
			if e.Type == berth.EventTaskUsage {
				err = errors.Join(err, json.Unmarshal(e.Data, &v))
				got = append(got, v.Usage.MemoryBytes)
			}
		}
		return err
	})
	if err != nil {
		x.t.Fatal(err)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		x.t.Error(diff)
	}
}

func TestSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &tracked{house: openWith(t, new(filewatch.Watcher))}
		for _, id := range []berth.TaskID{"a.1", "b.1"} {
			x.update(func(tx *store.Tx) error {
				return tx.InsertTask(&berth.Task{ID: id, Workspace: workspace.Key(), Job: "j", State: berth.TaskPlaced})
			})
		}
		x.report("a.1", 1, nil)
		x.report("a.1", 2, nil)
		x.peaks(2, 0) // nobody writes what waits: each is written as it comes
		x.told(2)     // the first says that it runs
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- x.h.(*api.Server).Samples(ctx) }()
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		wait(0)

		x.report("a.1", 30, nil)
		x.report("b.1", 1, nil) // not a sample: that it runs is news
		x.report("b.1", 2, nil)
		x.peaks(2, 1)
		x.told()
		if s := x.task("b.1").State; s != berth.TaskRunning {
			t.Errorf("b is %s", s)
		}
		wait(time.Second)
		x.told(2, 30) // they came together, and were written together
		x.report("a.1", 4, nil)
		x.report("a.1", 5, nil)
		wait(time.Second)
		x.told(5) // the newer one in the place of the older
		x.peaks(2, 1)
		wait(time.Minute)
		x.report("b.1", 3, nil)
		x.told(3) // alone
		x.report("a.1", 6, nil)
		wait(time.Second)
		x.told(6)
		x.peaks(30, 3) // peaks are written now and then, and none is forgotten

		x.report("b.1", 9, nil)
		x.report("b.1", 9, func(r *berth.Report) { r.Usage, r.Warning = nil, "careful" })
		x.told(9) // what is said besides does not wait, and does not overtake
		x.peaks(30, 9)

		x.update(func(tx *store.Tx) error {
			t, err := tx.Task("b.1")
			if err != nil {
				return err
			}
			t.Stop = true
			return tx.SaveTask(t)
		})
		if s := x.report("b.1", 10, nil); len(s) > 0 {
			t.Errorf("stop %v", s)
		}
		wait(2 * time.Minute)
		for i := range 2 { // alone, and in company
			if s := x.report("b.1", 11, nil); !slices.Contains(s, any("b.1")) {
				t.Errorf("%d: a task that should end is not told: %v", i, s)
			}
		}
		wait(time.Second)
		x.told(10, 11, 11)

		x.report("a.1", 7, nil)
		x.report("a.1", 40, nil)
		x.report("a.1", 0, func(r *berth.Report) { r.State, r.Usage, r.Exit = berth.TaskDone, nil, &berth.Exit{Code: 3} })
		x.report("a.1", 50, nil)
		x.report("b.1", 12, nil)
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
		x.told(12, 40)
		x.peaks(40, 11) // what is over stays as it ended
		if got := x.task("a.1"); got.State != berth.TaskDone || got.Exit.Code != 3 {
			t.Errorf("%+v", got)
		}
		x.report("b.1", 5, nil)
		x.report("b.1", 6, nil)
		x.told(5, 6)
		x.peaks(40, 12)
	})
}
