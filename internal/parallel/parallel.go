// Package parallel hands out the mini-batches of a job to its tasks and takes back what became of
// them. A mini-batch is a row of the store: which task has it, how often it failed, and where its
// rows are in the file of the job's results. A result counts once, however often it is reported.
package parallel

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/store"
)

// Limits of what a task may send.
const (
	MaxBatches = 100_000
	maxError   = 2000
	maxWant    = 1024 // mini-batches that a task has at once
)

// Ask is what the task of a job asks for, and what it has done. The task sends the same again until
// it has an answer.
type Ask struct {
	// Plan is the items of each mini-batch, where the answer before asked for it: those after the
	// first From. More says that others follow in the next question.
	Plan [][]string `json:"plan"`
	From int        `json:"from"`
	More bool       `json:"more"`
	// Rows is how many rows each of them has, where the input is a table.
	Rows []int `json:"rows"`
	// Holding are the mini-batches that it works on, and Want how many more it could.
	Holding  []int    `json:"holding"`
	Want     int      `json:"want"`
	Finished []Result `json:"finished"`
}

// Check refuses a question with more than a task can have to say.
func (a *Ask) Check() error {
	if n := max(len(a.Holding), len(a.Finished)); n > maxWant {
		return berth.Errorf(berth.Invalid, "a task has at most %d mini-batches, and this one speaks of %d", maxWant, n)
	}
	return nil
}

// Result is what became of a mini-batch.
type Result struct {
	Number   int    `json:"number"`
	Try      int    `json:"try"`
	Returned int    `json:"returned"` // items
	Error    string `json:"error"`    // why it failed; empty if it did not
	Loose    bool   `json:"loose"`    // see berth.MiniBatch
	Size     int64  `json:"size"`     // bytes of rows, which follow the question
	Start    int64  `json:"-"`        // where they are in the file of results
}

// Answer is what the task is to do.
type Answer struct {
	Plan    bool        `json:"plan,omitempty"` // say what the mini-batches are, after the first From
	From    int         `json:"from,omitempty"`
	Wait    bool        `json:"wait,omitempty"` // another task says what they are: ask again
	Batches []Piece     `json:"batches,omitempty"`
	Write   bool        `json:"write,omitempty"` // fetch the rows and write the result
	End     bool        `json:"end,omitempty"`   // there is nothing to do
	Reason  string      `json:"reason,omitempty"`
	Work    *berth.Work `json:"work,omitempty"`
}

// Piece is a mini-batch for a task.
type Piece struct {
	Number int      `json:"number"`
	Try    int      `json:"try"`
	Items  []string `json:"items"`
}

// exchange is one question of a task, or its end, and what follows.
type exchange struct {
	tx   *store.Tx
	task *berth.Task
	how  kind.Parallel
	work *berth.Work
	had  berth.Work
}

// Exchange takes what a task has done and gives it more to do.
func Exchange(tx *store.Tx, t *berth.Task, how kind.Parallel, a Ask) (Answer, error) {
	w, err := tx.Work(t.Workspace, t.Job)
	if err != nil {
		return Answer{}, err
	}
	if w == nil {
		w = &berth.Work{}
	}
	x := exchange{tx: tx, task: t, how: how, work: w, had: *w}
	answer, err := x.answer(a)
	if err != nil {
		return Answer{}, err
	}
	return answer, x.save()
}

func (x *exchange) answer(a Ask) (Answer, error) {
	if x.work.Batches == 0 {
		if answer, err := x.plan(a); err != nil || answer.Plan || answer.Wait {
			return answer, err
		}
	}
	for _, r := range a.Finished {
		if err := x.finish(r); err != nil {
			return Answer{}, err
		}
	}
	if x.work.Error == "" {
		x.work.Error = x.how.Exceeded(x.work)
	}
	var answer Answer
	if x.work.Error != "" {
		answer.End, answer.Reason = true, x.work.Error
		return answer, nil
	}
	mine, err := x.mine()
	if err != nil {
		return answer, err
	}
	held := 0
	for _, b := range mine {
		if slices.Contains(a.Holding, b.Number) {
			held++
		} else { // it was given this, and the answer got lost
			answer.Batches = append(answer.Batches, Piece{b.Number, b.Tries, b.Items})
		}
	}
	if answer.Batches, err = x.take(answer.Batches, min(a.Want, len(answer.Batches)+maxWant-len(mine))); err != nil {
		return answer, err
	}
	if len(answer.Batches) == 0 && held == 0 && a.Want > 0 {
		answer.Write, err = x.writer()
		answer.End = !answer.Write
		answer.Reason = "nothing is left to do"
	}
	answer.Work = x.work
	return answer, err
}

// plan keeps the mini-batches that a task names, and asks for more of them until it has named all.
// One task does so; if it ends before, another begins again.
func (x *exchange) plan(a Ask) (Answer, error) {
	w, me := x.work, x.task.ID
	if w.Planner != me {
		if w.Planner != "" {
			other, err := x.tx.Task(w.Planner)
			if err != nil && berth.CodeOf(err) != berth.NotFound {
				return Answer{}, err
			}
			if err == nil && other.State != berth.TaskDone {
				return Answer{Wait: true}, nil
			}
			if err := x.tx.DeleteBatches(x.task.Workspace, x.task.Job); err != nil {
				return Answer{}, err
			}
		}
		w.Planner, w.Planned, w.Items = me, 0, 0
	}
	if len(a.Plan) == 0 || a.From != w.Planned { // not asked yet, or the answer got lost
		return Answer{Plan: true, From: w.Planned}, nil
	}
	if n := w.Planned + len(a.Plan); n > MaxBatches {
		return Answer{}, berth.Errorf(berth.Limit, "the input makes more than %d mini-batches, as many as a job can have: raise mini_batch_size", MaxBatches)
	}
	if len(a.Rows) > 0 && len(a.Rows) != len(a.Plan) {
		return Answer{}, berth.Errorf(berth.Invalid, "%d mini-batches come with %d numbers of rows", len(a.Plan), len(a.Rows))
	}
	all := make([]berth.MiniBatch, len(a.Plan))
	for i, items := range a.Plan {
		all[i] = berth.MiniBatch{Number: w.Planned + i + 1, Items: items}
		if len(a.Rows) > 0 {
			all[i].Rows = max(0, a.Rows[i])
		}
		w.Items += all[i].Count()
	}
	w.Planned += len(all)
	if !a.More {
		w.Batches, w.Waiting = w.Planned, w.Planned
	}
	return Answer{Plan: a.More, From: w.Planned}, x.tx.InsertBatches(x.task.Workspace, x.task.Job, all)
}

// finish records what became of a mini-batch, if the task still has it.
func (x *exchange) finish(r Result) error {
	b, err := x.tx.Batch(x.task.Workspace, x.task.Job, r.Number)
	if berth.CodeOf(err) == berth.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if b.State != berth.BatchRunning || b.Owner != x.task.ID || b.Tries != r.Try {
		return nil // already recorded, or given to another
	}
	if r.Error != "" {
		return x.fail(b, r.Error)
	}
	b.State, b.Start, b.Size, b.Loose = berth.BatchDone, r.Start, r.Size, r.Loose
	b.Failed = max(0, b.Count()-max(0, r.Returned))
	x.work.Running--
	x.work.Done++
	x.work.DoneItems += b.Count()
	x.work.FailedItems += b.Failed
	if b.Failed > 0 {
		b.Error = fmt.Sprintf("run returned %d results for %d items", r.Returned, b.Count())
		x.work.Short++
		x.work.LastError = fmt.Sprintf("mini-batch %d: %s", b.Number, b.Error)
	}
	return x.tx.SaveBatch(x.task.Workspace, x.task.Job, b)
}

// fail records that a mini-batch failed. It is tried again, or has failed for good.
func (x *exchange) fail(b *berth.MiniBatch, why string) error {
	why = clean(why)
	b.Tries++
	b.Error = why
	x.work.Running--
	x.work.LastError = fmt.Sprintf("mini-batch %d (%s): %s", b.Number, name(b.Items), why)
	if b.Tries > x.how.Retries {
		b.State, b.Failed = berth.BatchFailed, b.Count()
		x.work.Failed++
		x.work.DoneItems += b.Count()
		x.work.FailedItems += b.Count()
	} else {
		b.State = berth.BatchWaiting
		x.work.Waiting++
	}
	return x.tx.SaveBatch(x.task.Workspace, x.task.Job, b)
}

// clean makes a message of a script one that every store takes: of a bounded length, UTF-8 and
// without null characters.
func clean(why string) string {
	if len(why) > maxError {
		why = why[:maxError]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(why, ""), "\x00", "")
}

// name is the items of a mini-batch, for people.
func name(items []string) string {
	switch len(items) {
	case 0:
		return "empty"
	case 1:
		return items[0]
	}
	return fmt.Sprintf("%s and %d more", items[0], len(items)-1)
}

// mine are the mini-batches that the task has.
func (x *exchange) mine() (out []*berth.MiniBatch, err error) {
	all, err := x.tx.Batches(x.task.Workspace, x.task.Job, store.BatchQuery{State: berth.BatchRunning})
	for _, b := range all {
		if b.Owner == x.task.ID {
			out = append(out, b)
		}
	}
	return out, err
}

// take gives the task mini-batches that wait until it has as many as it wants.
func (x *exchange) take(have []Piece, want int) ([]Piece, error) {
	if len(have) >= want || x.task.Stop || x.task.State == berth.TaskDone {
		return have, nil
	}
	next, err := x.tx.Batches(x.task.Workspace, x.task.Job, store.BatchQuery{State: berth.BatchWaiting, Limit: want - len(have)})
	if err != nil {
		return nil, err
	}
	for _, b := range next {
		b.State, b.Owner = berth.BatchRunning, x.task.ID
		if err := x.tx.SaveBatch(x.task.Workspace, x.task.Job, b); err != nil {
			return nil, err
		}
		x.work.Waiting--
		x.work.Running++
		have = append(have, Piece{b.Number, b.Tries, b.Items})
	}
	return have, nil
}

// writer says whether the task is to write the result: every mini-batch has ended, and nobody else
// is to.
func (x *exchange) writer() (bool, error) {
	if !x.work.Ended() || x.task.Stop {
		return false, nil
	}
	if x.work.Writer == "" || x.work.Writer == x.task.ID {
		x.work.Writer = x.task.ID
		return true, nil
	}
	other, err := x.tx.Task(x.work.Writer)
	if err != nil && berth.CodeOf(err) != berth.NotFound {
		return false, err
	}
	if err == nil && other.State != berth.TaskDone {
		return false, nil
	}
	if err == nil && other.Exit.OK() {
		return false, nil
	}
	x.work.Writer = x.task.ID
	return true, nil
}

// save writes the work, and tells how far it is each time another hundredth has ended.
func (x *exchange) save() error {
	w := x.work
	now, err := json.Marshal(w)
	if err != nil {
		return err
	}
	before, err := json.Marshal(x.had)
	if err != nil || string(now) == string(before) {
		return err
	}
	ended := func(w *berth.Work) int { return (w.Done + w.Failed) * 100 / max(1, w.Batches) }
	if ended(w) != ended(&x.had) || w.Batches != x.had.Batches || w.Error != x.had.Error || w.Writer != x.had.Writer {
		public := *w
		public.Settled = nil
		data, err := json.Marshal(public)
		if err != nil {
			return err
		}
		x.tx.Emit(berth.Event{
			Workspace: x.task.Workspace, Subject: "jobs/" + x.task.Job, Type: berth.EventJobProgress, Data: data,
			Reason: fmt.Sprintf("%d of %d mini-batches have ended", w.Done+w.Failed, w.Batches),
		})
	}
	return x.tx.SaveWork(x.task.Workspace, x.task.Job, w)
}

// Settle takes back what a task had that has ended, once. Mini-batches that it was working on are
// given to others; if it was not taken away but failed by itself, that was one of their tries. The
// files that its script wrote are kept when a task ends well; if it did not, they are made again.
func Settle(tx *store.Tx, t *berth.Task, how kind.Parallel) (*berth.Work, error) {
	w, err := tx.Work(t.Workspace, t.Job)
	if err != nil {
		return nil, err
	}
	if w == nil {
		w = &berth.Work{}
	}
	if t.State != berth.TaskDone || slices.Contains(w.Settled, t.ID) {
		return w, nil
	}
	x := exchange{tx: tx, task: t, how: how, work: w, had: *w}
	w.Settled = append(slices.Clone(w.Settled), t.ID)
	mine, err := x.mine()
	if err != nil {
		return nil, err
	}
	why, counts := blame(t)
	for _, b := range mine {
		if counts {
			err = x.fail(b, why)
		} else {
			b.State = berth.BatchWaiting
			w.Running--
			w.Waiting++
			err = tx.SaveBatch(t.Workspace, t.Job, b)
		}
		if err != nil {
			return nil, err
		}
	}
	if t.Exit != nil && t.Exit.Cause == "lost" {
		w.Lost++
	}
	if !t.Exit.OK() {
		if err := x.redo(); err != nil {
			return nil, err
		}
	}
	if w.Error == "" {
		w.Error = how.Exceeded(w)
	}
	if w.Error == "" && counts && len(mine) == 0 && !t.Exit.OK() && !t.Stop {
		w.Error = why
	}
	return w, x.save()
}

// blame is why a task ended otherwise than well, and whether that was its own doing.
func blame(t *berth.Task) (why string, counts bool) {
	switch {
	case t.Exit.OK():
		return "its task ended without reporting it", true
	case t.Exit == nil:
		return "its task ended, but how is not recorded", true
	}
	switch t.Exit.Cause {
	case "evicted", "lost", "canceled", "budget", "peer":
		return t.Exit.Reason, false
	}
	return "its task ended: " + outcome(t.Exit), !t.Evict
}

// outcome is an exit in words.
func outcome(e *berth.Exit) string {
	switch {
	case e.Reason != "":
		return e.Reason
	case e.OOM:
		return "the kernel ended it because it ran out of memory"
	case e.Signal != "":
		return "it was ended by " + e.Signal
	}
	return fmt.Sprintf("it ended with exit code %d", e.Code)
}

// redo returns the mini-batches to the others whose files were on the disk of the task's node. A
// result that was written before is written again.
func (x *exchange) redo() error {
	done, err := x.tx.Batches(x.task.Workspace, x.task.Job, store.BatchQuery{State: berth.BatchDone})
	if err != nil {
		return err
	}
	for _, b := range done {
		if b.Owner != x.task.ID || !b.Loose {
			continue
		}
		x.work.Done--
		x.work.Waiting++
		x.work.DoneItems -= b.Count()
		x.work.FailedItems -= b.Failed
		if b.Failed > 0 {
			x.work.Short--
		}
		x.work.Writer = ""
		b.State, b.Failed, b.Start, b.Size, b.Loose, b.Error = berth.BatchWaiting, 0, 0, 0, false, ""
		if err := x.tx.SaveBatch(x.task.Workspace, x.task.Job, b); err != nil {
			return err
		}
	}
	return nil
}
