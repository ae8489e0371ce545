package parallel_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/parallel"
	"github.com/berthml/berth/internal/store"
)

// TestExactlyOnce: whatever tasks do, however often they repeat themselves and whenever they die,
// every mini-batch ends once, its rows count once, and the counts are those of the rows.
func TestExactlyOnce(t *testing.T) {
	dir, run := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(dir, fmt.Sprint(run, ".db")), store.Options{NoSync: true})
		if err != nil {
			rt.Fatal(err)
		}
		defer db.Close()
		w := &world{rt: rt, db: db, how: kind.Parallel{Retries: 1, MostItems: -1, MostBatches: -1, MostPercent: 100}}
		w.newTask()
		n := rapid.IntRange(1, 12).Draw(rt, "batches")
		for range 200 {
			if w.act(n) {
				break
			}
		}
		w.drain(n)
		w.check(n)
	})
}

// world is a job and its tasks.
type world struct {
	rt    *rapid.T
	db    *store.DB
	how   kind.Parallel
	tasks []*task
	rows  int64
}

type task struct {
	*berth.Task
	holding []parallel.Piece
	last    *parallel.Ask
	over    bool
	writes  bool
}

const ws = "/w"

func (w *world) update(f func(tx *store.Tx) error) {
	w.rt.Helper()
	if err := w.db.Update(w.rt.Context(), f); err != nil {
		w.rt.Fatal(err)
	}
}

func (w *world) newTask() {
	n := len(w.tasks) + 1
	t := &task{Task: &berth.Task{ID: berth.TaskID(fmt.Sprintf("j.%d", n)), Workspace: ws, Job: "j", Attempt: n, State: berth.TaskRunning}}
	w.tasks = append(w.tasks, t)
	w.update(func(tx *store.Tx) error { return tx.InsertTask(t.Task) })
}

func (w *world) live() (out []*task) {
	for _, t := range w.tasks {
		if t.State != berth.TaskDone && !t.over {
			out = append(out, t)
		}
	}
	return out
}

// ask sends a question; the answer may get lost.
func (w *world) ask(t *task, a parallel.Ask, lost bool) {
	var got parallel.Answer
	w.update(func(tx *store.Tx) (err error) {
		got, err = parallel.Exchange(tx, t.Task, w.how, a)
		return err
	})
	t.last = &a
	if lost {
		return
	}
	t.last = nil
	for _, r := range a.Finished {
		t.holding = slices.DeleteFunc(t.holding, func(p parallel.Piece) bool { return p.Number == r.Number })
	}
	t.holding = append(t.holding, got.Batches...)
	t.over, t.writes = got.End || got.Write, got.Write
	if got.Plan {
		t.over = false
	}
	if got.End { // there was nothing to do for it
		before := w.failure()
		if w.end(t, &berth.Exit{}); w.failure() != before {
			w.rt.Errorf("the job fails because a task had nothing to do: %s", w.failure())
		}
	}
}

// failure is why the job fails, if it does.
func (w *world) failure() (why string) {
	w.update(func(tx *store.Tx) error {
		work, err := tx.Work(ws, "j")
		if work != nil {
			why = work.Error
		}
		return err
	})
	return why
}

func (w *world) question(t *task, n int, finish bool) parallel.Ask {
	if t.last != nil {
		return *t.last // it sends the same again
	}
	a := parallel.Ask{Want: 1}
	for i := range n {
		a.Plan = append(a.Plan, []string{fmt.Sprint("f", i)})
	}
	for i, p := range t.holding {
		if i == 0 && finish {
			r := parallel.Result{Number: p.Number, Try: p.Try, Returned: 1, Size: 1, Start: w.rows}
			w.rows++
			if rapid.IntRange(0, 4).Draw(w.rt, "fails") == 0 {
				r = parallel.Result{Number: p.Number, Try: p.Try, Error: "no"}
			}
			a.Finished = append(a.Finished, r)
			continue
		}
		a.Holding = append(a.Holding, p.Number)
	}
	return a
}

// act does something, and says whether the job is over.
func (w *world) act(n int) bool {
	live := w.live()
	if len(live) == 0 {
		w.newTask()
		live = w.live()
	}
	t := live[rapid.IntRange(0, len(live)-1).Draw(w.rt, "task")]
	switch rapid.IntRange(0, 9).Draw(w.rt, "what") {
	case 0:
		w.end(t, &berth.Exit{Code: 137, Signal: "SIGKILL"})
	case 1:
		w.end(t, &berth.Exit{Code: 143, Cause: "evicted"})
	case 2:
		w.newTask()
	default:
		w.ask(t, w.question(t, n, rapid.Bool().Draw(w.rt, "finish")), rapid.IntRange(0, 3).Draw(w.rt, "lost") == 0)
	}
	return t.writes
}

// end ends a task, and settles it twice: the second time changes nothing.
func (w *world) end(t *task, e *berth.Exit) {
	t.State, t.Exit = berth.TaskDone, e
	w.update(func(tx *store.Tx) error {
		if err := tx.SaveTask(t.Task); err != nil {
			return err
		}
		for range 2 {
			if _, err := parallel.Settle(tx, t.Task, w.how); err != nil {
				return err
			}
		}
		return nil
	})
}

// drain brings the job to its end with one more task, unless it has failed.
func (w *world) drain(n int) {
	for _, t := range w.live() {
		if !t.writes {
			w.end(t, &berth.Exit{Cause: "evicted"})
		}
	}
	if slices.ContainsFunc(w.tasks, func(t *task) bool { return t.writes && t.State != berth.TaskDone }) {
		return
	}
	w.newTask()
	t := w.tasks[len(w.tasks)-1]
	for range 10 * (n + 1) {
		if t.over {
			return
		}
		w.ask(t, w.question(t, n, true), false)
	}
	w.rt.Fatalf("the job does not end: %+v", t)
}

func (w *world) check(n int) {
	w.update(func(tx *store.Tx) error {
		work, err := tx.Work(ws, "j")
		if err != nil || work.Error != "" { // a task died with nothing to blame it on: the job failed
			return err
		}
		if !work.Ended() || work.Batches != n || work.Done+work.Failed != n || work.Items != n || work.FailedItems != work.Failed {
			w.rt.Errorf("the counts: %+v", work)
		}
		done, err := tx.Batches(ws, "j", store.BatchQuery{State: berth.BatchDone})
		starts := map[int64]bool{}
		for _, b := range done {
			if starts[b.Start] || b.Size != 1 {
				w.rt.Errorf("mini-batch %d has the rows of another: %+v", b.Number, b)
			}
			starts[b.Start] = true
		}
		if len(done) != work.Done {
			w.rt.Errorf("%d are done, and %d are counted", len(done), work.Done)
		}
		return err
	})
}
