package parallel_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/parallel"
	"github.com/berthml/berth/internal/store"
)

// TestExactlyOnce: whatever tasks do, however often they repeat themselves and whenever they die,
// every mini-batch ends once, its rows count once, the counts are those of the rows, and files that
// scripts wrote are of tasks that kept them.
func TestExactlyOnce(t *testing.T) {
	dir, run := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		w := newWorld(rt, rt, filepath.Join(dir, fmt.Sprint(run, ".db")), 1)
		defer w.db.Close()
		w.newTask()
		n := rapid.IntRange(1, 12).Draw(rt, "batches")
		for range 200 {
			if w.act(n); w.over() {
				break
			}
		}
		w.drain(n)
		w.check(n)
	})
}

// world is a job and its tasks.
type world struct {
	rt    tester
	draw  *rapid.T
	db    *store.DB
	how   kind.Parallel
	tasks []*task
	rows  int64
}

type task struct {
	*berth.Task
	holding []parallel.Piece
	last    *parallel.Ask
	over    bool // it asks no more, and its files are being kept
	writes  bool // the result, before that
}

// tester is a test, also one of rapid's.
type tester interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

func newWorld(t tester, draw *rapid.T, path string, retries int) *world {
	db, err := store.Open(t.Context(), "sqlite:"+path, store.Options{NoSync: true})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return &world{rt: t, draw: draw, db: db, how: kind.Parallel{Retries: retries, MostItems: -1, MostBatches: -1, MostPercent: 100}}
}

const ws = "/w"

func (w *world) update(f func(tx *store.Tx) error) {
	w.rt.Helper()
	if err := w.db.Update(w.rt.Context(), f); err != nil {
		w.rt.Fatalf("%v", err)
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
		if t.State != berth.TaskDone {
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
}

// work is how far the job is.
func (w *world) work() (out berth.Work) {
	w.update(func(tx *store.Tx) error {
		work, err := tx.Work(ws, "j")
		if work != nil {
			out = *work
		}
		return err
	})
	return out
}

// over says whether the job is: it has failed, or its result is written and every task has ended.
func (w *world) over() bool {
	work := w.work()
	return work.Error != "" || len(w.live()) == 0 && work.Ended() && slices.ContainsFunc(w.tasks, func(t *task) bool {
		return t.ID == work.Writer && t.Exit.OK()
	})
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
			r := parallel.Result{Number: p.Number, Try: p.Try, Returned: 1, Size: 1, Start: w.rows, Loose: rapid.Bool().Draw(w.draw, "loose")}
			w.rows++
			switch rapid.IntRange(0, 7).Draw(w.draw, "result") {
			case 0:
				r = parallel.Result{Number: p.Number, Try: p.Try, Error: "no"}
			case 1:
				r.Returned = 0
			}
			a.Finished = append(a.Finished, r)
			continue
		}
		a.Holding = append(a.Holding, p.Number)
	}
	return a
}

// act does something.
func (w *world) act(n int) {
	live := w.live()
	if len(live) == 0 {
		w.newTask()
		live = w.live()
	}
	t := live[rapid.IntRange(0, len(live)-1).Draw(w.draw, "task")]
	switch rapid.IntRange(0, 12).Draw(w.draw, "what") {
	case 0:
		if t.writes || len(t.holding) > 0 { // or else the job fails at its beginning
			w.end(t, &berth.Exit{Code: 137, Signal: "SIGKILL"})
		}
	case 1:
		w.end(t, &berth.Exit{Code: 143, Cause: "evicted"})
	case 2:
		w.end(t, &berth.Exit{Code: -1, Cause: "lost"})
	case 3:
		w.newTask()
	default:
		if t.over {
			w.end(t, &berth.Exit{})
			return
		}
		w.ask(t, w.question(t, n, rapid.Bool().Draw(w.draw, "finish")), rapid.IntRange(0, 3).Draw(w.draw, "lost") == 0)
	}
}

// end ends a task, and settles it twice: the second time changes nothing.
func (w *world) end(t *task, e *berth.Exit) {
	before := w.work()
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
	if after := w.work(); t.over && (e.OK() || e.Cause != "") && after.Error != before.Error {
		w.rt.Errorf("the job fails because a task had nothing to do: %s", after.Error)
	}
}

// drain brings the job to its end, unless it has failed.
func (w *world) drain(n int) {
	for _, t := range w.live() {
		if !t.over {
			w.end(t, &berth.Exit{Cause: "evicted"})
		}
	}
	for range 20 * (n + 1) {
		if w.over() {
			return
		}
		live := w.live()
		switch {
		case len(live) == 0:
			w.newTask()
		case live[0].over:
			w.end(live[0], &berth.Exit{})
		default:
			w.ask(live[0], w.question(live[0], n, true), false)
		}
	}
	w.rt.Fatalf("the job does not end: %+v", w.work())
}

func (w *world) check(n int) {
	work := w.work()
	if work.Error != "" { // a task died with nothing to blame it on: the job failed
		return
	}
	if work.Batches != n || work.Done+work.Failed != n || work.Items != n || work.DoneItems != n || work.FailedItems != work.Failed+work.Short {
		w.rt.Errorf("the counts: %+v", work)
	}
	w.update(func(tx *store.Tx) error {
		done, err := tx.Batches(ws, "j", store.BatchQuery{State: berth.BatchDone})
		starts, short := map[int64]bool{}, 0
		for _, b := range done {
			if starts[b.Start] || b.Size != 1 {
				w.rt.Errorf("mini-batch %d has the rows of another: %+v", b.Number, b)
			}
			starts[b.Start] = true
			short += b.Failed
			if b.Loose && !slices.ContainsFunc(w.tasks, func(t *task) bool { return t.ID == b.Owner && t.Exit.OK() }) {
				w.rt.Errorf("the files of mini-batch %d are lost: %+v", b.Number, b)
			}
		}
		if len(done) != work.Done || short != work.Short {
			w.rt.Errorf("%d are done and %d of them short, and %+v is counted", len(done), short, work)
		}
		return err
	})
}

// pieces begins a job of n mini-batches, and its first task takes them all.
func pieces(t *testing.T, n, retries int) *world {
	w := newWorld(t, nil, filepath.Join(t.TempDir(), "b.db"), retries)
	t.Cleanup(func() { w.db.Close() }) // the folder goes with the test
	w.newTask()
	a := parallel.Ask{Want: n}
	for i := range n {
		a.Plan = append(a.Plan, []string{fmt.Sprint("f", i)})
	}
	w.ask(w.tasks[0], a, false)
	if got := len(w.tasks[0].holding); got != n {
		t.Fatalf("it has %d mini-batches, want %d", got, n)
	}
	return w
}

// TestFilesOfATaskThatDidNotKeepThem: the mini-batches of a task that was ended before it had kept
// the files of its script are done again, and the result is written again, however it was ended.
func TestFilesOfATaskThatDidNotKeepThem(t *testing.T) {
	for _, cause := range []string{"evicted", "lost"} {
		t.Run(cause, func(t *testing.T) {
			w := pieces(t, 2, 5)
			first := w.tasks[0]
			w.ask(first, parallel.Ask{Want: 0, Holding: []int{2}, Finished: []parallel.Result{{Number: 1, Returned: 1, Loose: true}}}, false)
			w.ask(first, parallel.Ask{Want: 1, Finished: []parallel.Result{{Number: 2, Returned: 1}}}, false)
			if work := w.work(); !first.writes || work.Writer != first.ID {
				t.Fatalf("%+v", work)
			}
			w.newTask()
			w.end(first, &berth.Exit{Code: -1, Cause: cause})
			if work := w.work(); work.Waiting != 1 || work.Done != 1 || work.DoneItems != 1 || work.Writer != "" {
				t.Errorf("%+v", work)
			}
		})
	}
}

// TestTakenAwayCostsNoTry: what a task had that lost its node is tried as often as before.
func TestTakenAwayCostsNoTry(t *testing.T) {
	for _, cause := range []string{"evicted", "lost"} {
		w := pieces(t, 2, 0)
		w.end(w.tasks[0], &berth.Exit{Code: -1, Cause: cause})
		if work := w.work(); work.Waiting != 2 || work.Failed != 0 || work.Error != "" {
			t.Errorf("%s: %+v", cause, work)
		}
	}
	w := pieces(t, 2, 0)
	w.end(w.tasks[0], &berth.Exit{Code: 137, Signal: "SIGKILL"})
	if work := w.work(); work.Waiting != 0 || work.Failed != 2 {
		t.Errorf("killed: %+v", work)
	}
}

// TestErrorOfAScript: the message of an exception is cut between characters, and what a database
// would refuse is left out.
func TestErrorOfAScript(t *testing.T) {
	w := pieces(t, 1, 1)
	long := "a\x00\xffb" + strings.Repeat("é", 5000)
	w.ask(w.tasks[0], parallel.Ask{Finished: []parallel.Result{{Number: 1, Error: long}}}, false)
	got := w.work().LastError
	if !strings.HasPrefix(got, "mini-batch 1 (f0): abéé") || !utf8.ValidString(got) || strings.Contains(got, "\uFFFD") || len(got) > 2100 {
		t.Errorf("%.60q has %d bytes", got, len(got))
	}
}

// TestPlanInPieces: a long list of mini-batches comes in several questions of one task, which may
// be repeated. Others wait for it, and one of them begins again if it ends before.
func TestPlanInPieces(t *testing.T) {
	w := newWorld(t, nil, filepath.Join(t.TempDir(), "db"), 1)
	defer w.db.Close()
	w.newTask()
	w.newTask()
	ask := func(i int, a parallel.Ask) (got parallel.Answer) {
		t.Helper()
		w.update(func(tx *store.Tx) (err error) {
			got, err = parallel.Exchange(tx, w.tasks[i].Task, w.how, a)
			return err
		})
		return got
	}
	if got := ask(0, parallel.Ask{Want: 1}); !got.Plan || got.From != 0 {
		t.Fatalf("%+v", got)
	}
	first := parallel.Ask{Want: 1, Plan: [][]string{{"a"}, {"b"}}, More: true}
	for range 2 {
		if got := ask(0, first); !got.Plan || got.From != 2 || len(got.Batches) != 0 {
			t.Fatalf("%+v", got)
		}
	}
	if got := ask(1, parallel.Ask{Want: 1}); !got.Wait || got.Plan {
		t.Fatalf("%+v", got)
	}
	w.tasks[0].State, w.tasks[0].Exit = berth.TaskDone, &berth.Exit{Code: 143, Cause: "evicted"}
	w.update(func(tx *store.Tx) error { return tx.SaveTask(w.tasks[0].Task) })
	if got := ask(1, parallel.Ask{Want: 1}); !got.Plan || got.From != 0 {
		t.Fatalf("%+v", got)
	}
	if got := ask(1, parallel.Ask{Want: 1, Plan: [][]string{{"a", "x"}}, More: true}); !got.Plan || got.From != 1 {
		t.Fatalf("%+v", got)
	}
	got := ask(1, parallel.Ask{Want: 9, Plan: [][]string{{"b"}, {"c"}}, From: 1})
	if len(got.Batches) != 3 || got.Batches[0].Items[1] != "x" || got.Batches[2].Number != 3 || got.Work.Items != 4 || got.Work.Batches != 3 {
		t.Fatalf("%+v %+v", got, got.Work)
	}
}
