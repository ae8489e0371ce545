package host

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
)

// takeUp is a worker that takes up what an earlier one left and is killed at once.
func takeUp(t *testing.T, dir string, panicked bool) *worker {
	t.Helper()
	w, err := openWorker(dir, panicked, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	w.ctx, w.quit = ctx, cancel
	w.recover()
	w.tasks.Wait()
	return w
}

// TestTakingUpEndsTheWorker: a task with which each worker ends when it takes it up is found out
// and fails in the end; others stay, and kills count for nothing.
func TestTakingUpEndsTheWorker(t *testing.T) {
	dir := t.TempDir()
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	j, err := openJournal(dir, boot)
	if err != nil {
		t.Fatal(err)
	}
	for id, m := range map[berth.TaskID]runner.Mark{
		"deadly.1": {Step: runner.StepExited, Exit: &berth.Exit{}}, "good.1": {Step: runner.StepExited, Exit: &berth.Exit{}},
	} {
		b, err := json.Marshal(berth.Launch{Task: id, Command: "true"})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.claim(id, b, runner.Mark{}); err != nil {
			t.Fatal(err)
		}
		if err := j.mark(id, m); err != nil {
			t.Fatal(err)
		}
	}
	j.f.Close()
	for range 5 {
		if w := takeUp(t, dir, false); w.jobs["deadly.1"].trial || w.jobs["deadly.1"].exit != nil {
			t.Fatal("kills count")
		}
	}
	for range mostPanics - 1 {
		if w := takeUp(t, dir, true); w.jobs["deadly.1"].trial {
			t.Fatal("an end counts alone")
		}
	}
	for n := range mostDeaths {
		w := takeUp(t, dir, true)
		for _, id := range []berth.TaskID{"deadly.1", "good.1"} {
			if j := w.jobs[id]; !j.trial || j.exit != nil {
				t.Fatalf("after %d ends %s is on trial: %v, %+v", n, id, j.trial, j.exit)
			}
		}
		if err := w.journal.try("deadly.1"); err != nil {
			t.Fatal(err)
		}
	}
	w := takeUp(t, dir, true)
	if e := w.jobs["deadly.1"].exit; e == nil || e.Cause != "upload" || !strings.Contains(e.Reason, "ended several times") {
		t.Errorf("%+v", e)
	}
	if e := w.jobs["good.1"].exit; e != nil {
		t.Errorf("the other: %+v", e)
	}
	if err := w.journal.well(); err != nil {
		t.Fatal(err)
	}
	if w := takeUp(t, dir, true); w.jobs["good.1"].trial {
		t.Error("on trial after a worker that was well")
	}
}

// TestTrials: the task during whose trial a worker ended is tried first and alone, and one that
// passes is no longer to blame.
func TestTrials(t *testing.T) {
	dir := t.TempDir()
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	j, err := openJournal(dir, boot)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []berth.TaskID{"a.1", "b.1", "c.1"} {
		b, err := json.Marshal(berth.Launch{Task: id, Command: "true"})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.claim(id, b, runner.Mark{}); err != nil {
			t.Fatal(err)
		}
		if err := j.mark(id, runner.Mark{Step: runner.StepExited, Exit: &berth.Exit{}}); err != nil {
			t.Fatal(err)
		}
	}
	j.f.Close()
	for range mostPanics {
		if err := takeUp(t, dir, true).journal.try(""); err != nil { // whichever it took up is not to blame
			t.Fatal(err)
		}
	}
	for range 2 * mostDeaths {
		w := takeUp(t, dir, true)
		if e := w.jobs["b.1"].exit; e != nil {
			t.Fatalf("given up though it passed: %+v", e)
		}
		if err := w.journal.try("b.1"); err != nil {
			t.Fatal(err)
		}
		w = takeUp(t, dir, true)
		if w.firstTrial != "b.1" {
			t.Fatalf("%q is tried first", w.firstTrial)
		}
		w.ctx, w.firstOver = t.Context(), make(chan struct{}) // those of takeUp have ended
		order := make(chan berth.TaskID)
		for _, id := range []berth.TaskID{"a.1", "c.1"} {
			go func() {
				if over, ok := w.onTrial(id); ok {
					over()
					order <- id
				}
			}()
		}
		over, ok := w.onTrial("b.1")
		if !ok {
			t.Fatal("not taken up")
		}
		select {
		case id := <-order:
			t.Fatalf("%s is tried beside it", id)
		default:
		}
		over()
		<-order
		<-order
	}
}
