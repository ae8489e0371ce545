package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// state is everything reads can tell of a small world.
type state struct {
	Docs  map[string]*store.Doc
	Tasks map[string][]*berth.Task
	Task  map[berth.TaskID]*berth.Task
	// Active and Done are read from their indexes.
	Active map[berth.TaskID]bool
	Done   map[string]bool
}

var (
	memoryJobs  = []string{"a", "B", "c"}
	memorySpace = []string{"w1", "w2"}
)

func read(tx *store.Tx) (state, error) {
	s := state{map[string]*store.Doc{}, map[string][]*berth.Task{}, map[berth.TaskID]*berth.Task{}, map[berth.TaskID]bool{}, map[string]bool{}}
	active, err := tx.ActiveTasks()
	if err != nil {
		return s, err
	}
	for _, t := range active {
		s.Active[t.ID] = true
	}
	for _, w := range memorySpace {
		docs, err := tx.List(store.Query{Workspace: w, Kind: "jobs", Status: []string{"y"}})
		if err != nil {
			return s, err
		}
		for _, d := range docs {
			s.Done[w+d.Name] = true
		}
		for _, n := range memoryJobs {
			d, err := tx.Get(w, "jobs", n, "")
			if err != nil && berth.CodeOf(err) != berth.NotFound {
				return s, err
			}
			s.Docs[w+n] = d
			if got := d != nil && d.Status == "y"; got != s.Done[w+n] {
				return s, fmt.Errorf("job %s %s is listed: %v", w, n, !got)
			}
			if s.Tasks[w+n], err = tx.TasksOf(w, n); err != nil {
				return s, err
			}
			for _, t := range s.Tasks[w+n] {
				if s.Active[t.ID] != (t.State != berth.TaskDone) {
					return s, fmt.Errorf("task %s is %s, and active: %v", t.ID, t.State, s.Active[t.ID])
				}
			}
			for i := range 5 {
				id := taskID(w, n, i)
				if s.Task[id], err = tx.Task(id); err != nil && berth.CodeOf(err) != berth.NotFound {
					return s, err
				}
			}
		}
	}
	return s, nil
}

func taskID(w, n string, i int) berth.TaskID { return berth.TaskID(fmt.Sprintf("%s%s.%d", w, n, i)) }

func marshal(r *rapid.T, s state) string {
	b, err := json.Marshal(s)
	if err != nil {
		r.Fatal(err)
	}
	return string(b)
}

// TestMemory: an update reads what a view reads, whatever was written, undone and deleted before,
// and what a caller does to what it read is not seen by the next.
func TestMemory(t *testing.T) {
	db := open(t, "sqlite:"+filepath.Join(t.TempDir(), "berth.db"))
	undone := errors.New("undone")
	rapid.Check(t, func(r *rapid.T) {
		must(t, db, func(tx *store.Tx) error {
			return errors.Join(tx.DeleteWorkspace(memorySpace[0]), tx.DeleteWorkspace(memorySpace[1]))
		})
		for range rapid.IntRange(1, 8).Draw(r, "steps") {
			err := db.Update(ctx, func(tx *store.Tx) error {
				for range rapid.IntRange(1, 4).Draw(r, "writes") {
					if err := change(r, tx); err != nil && berth.CodeOf(err) != berth.NotFound && berth.CodeOf(err) != berth.Conflict {
						return err
					}
				}
				if rapid.IntRange(0, 3).Draw(r, "undo") == 0 {
					return undone
				}
				return nil
			})
			if err != nil && !errors.Is(err, undone) {
				r.Fatal(err)
			}
			var viewed, updated state
			if err := db.View(ctx, func(tx *store.Tx) (err error) { viewed, err = read(tx); return err }); err != nil {
				r.Fatal(err)
			}
			if err := db.Update(ctx, func(tx *store.Tx) (err error) { updated, err = read(tx); return err }); err != nil {
				r.Fatal(err)
			}
			if a, b := marshal(r, viewed), marshal(r, updated); a != b {
				r.Fatalf("a view reads\n%s\nan update reads\n%s", a, b)
			}
		}
	})
}

// change does one thing to the world.
func change(r *rapid.T, tx *store.Tx) error {
	w, n := rapid.SampledFrom(memorySpace).Draw(r, "workspace"), rapid.SampledFrom(memoryJobs).Draw(r, "job")
	text := json.RawMessage(`"` + rapid.StringMatching(`[a-z]{0,9}`).Draw(r, "text") + `"`)
	switch rapid.IntRange(0, 19).Draw(r, "what") {
	case 0, 11, 12:
		if rapid.Bool().Draw(r, "large") {
			text = json.RawMessage(`"` + strings.Repeat("x", 9000) + `"`)
		}
		return tx.Insert(&store.Doc{Workspace: w, Kind: "jobs", Name: n, Status: "x", Body: text, Created: time.Now()})
	case 1, 13, 14:
		d, err := tx.Get(w, "jobs", n, "")
		if err != nil {
			return err
		}
		d.Status, d.Own = "y", text
		err = tx.Save(d)
		d.Status = "never written"
		return err
	case 2: // one that was not read before
		return tx.Save(&store.Doc{Workspace: w, Kind: "jobs", Name: n, Status: "z", Own: text})
	case 3:
		return tx.Delete(w, "jobs", n, "")
	case 4:
		return tx.DeleteTasks(w, n)
	case 5:
		return tx.DeleteWorkspace(w)
	case 6, 7, 8, 9, 10:
		return tx.InsertTask(&berth.Task{ID: taskID(w, n, rapid.IntRange(0, 3).Draw(r, "task")), Workspace: w, Job: n, Why: string(text), Created: time.Now()})
	default:
		t, err := tx.Task(taskID(w, n, rapid.IntRange(0, 3).Draw(r, "task")))
		if err != nil {
			return err
		}
		t.Why, t.State, t.Exit, t.Seen, t.Times.Ended = string(text), rapid.SampledFrom([]berth.TaskState{berth.TaskRunning, berth.TaskDone}).Draw(r, "state"), &berth.Exit{Reason: string(text)}, time.Now(), time.Now()
		err = tx.SaveTask(t)
		t.Exit.Reason, t.Why = "never written", "never written"
		return err
	}
}

// TestMemoryLimits: more tasks than are remembered of a job are all there.
func TestMemoryLimits(t *testing.T) {
	db := open(t, "sqlite:"+filepath.Join(t.TempDir(), "berth.db"))
	for i := range 70 {
		must(t, db, func(tx *store.Tx) error {
			err := tx.InsertTask(&berth.Task{ID: taskID("w", "a", i), Workspace: "w", Job: "a"})
			tasks, err2 := tx.TasksOf("w", "a")
			if len(tasks) != i+1 {
				t.Errorf("%d tasks after %d", len(tasks), i+1)
			}
			last, err3 := tx.Task(taskID("w", "a", i))
			if last == nil || last.ID != taskID("w", "a", i) {
				t.Errorf("task %d is %v", i, last)
			}
			return errors.Join(err, err2, err3)
		})
	}
}

// TestMemoryUndone counts in a document: an update that is taken back, alone out of a batch, has
// not counted for the next.
func TestMemoryUndone(t *testing.T) {
	db := open(t, "sqlite:"+filepath.Join(t.TempDir(), "berth.db"))
	must(t, db, func(tx *store.Tx) error {
		return tx.Insert(&store.Doc{Workspace: "w", Kind: "jobs", Name: "a", Status: "0"})
	})
	release := hold(t, db)
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			_ = db.Update(ctx, func(tx *store.Tx) error {
				d, err := tx.Get("w", "jobs", "a", "")
				if err != nil {
					return err
				}
				n, _ := strconv.Atoi(d.Status)
				d.Status = strconv.Itoa(n + 1)
				if err := tx.Save(d); err != nil || i%3 > 0 {
					return err
				}
				return errors.New("undone")
			})
		})
	}
	release()
	wg.Wait()
	look(t, db, func(tx *store.Tx) error {
		d, err := tx.Get("w", "jobs", "a", "")
		if err == nil && d.Status != "40" {
			t.Errorf("40 updates counted to %s", d.Status)
		}
		return err
	})
}

// TestMemoryForeign: what another process wrote is read.
func TestMemoryForeign(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "berth.db")
	a, b := open(t, url), open(t, url)
	must(t, a, func(tx *store.Tx) error {
		return tx.Insert(&store.Doc{Workspace: "w", Kind: "jobs", Name: "a", Status: "first"})
	})
	for i, db := range []*store.DB{b, a, b} {
		must(t, db, func(tx *store.Tx) error {
			d, err := tx.Get("w", "jobs", "a", "")
			if err != nil {
				return err
			}
			if want := []string{"first", "0", "1"}[i]; d.Status != want {
				t.Errorf("reads %q, not %q", d.Status, want)
			}
			d.Status = fmt.Sprint(i)
			return tx.Save(d)
		})
	}
}
