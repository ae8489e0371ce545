package kind_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/kind"
)

func TestNodes(t *testing.T) {
	for _, c := range []struct {
		doc  string
		code berth.Code
	}{
		{`{}`, ""},
		{`{"resources":{"instanceCount":2}}`, ""},
		{`{"resources":{"instanceCount":1000}}`, ""},
		{`{"resources":{"instanceCount":0}}`, berth.Invalid},
		{`{"resources":{"instanceCount":-1}}`, berth.Invalid},
		{`{"resources":{"instanceCount":1001}}`, berth.Invalid},
		{`{"distribution":{"distributionType":"PyTorch"}}`, ""},
		{`{"distribution":{"distributionType":"Mpi","processCountPerInstance":4}}`, ""},
		{`{"distribution":{"distributionType":"Mpi","processCountPerInstance":0}}`, berth.Invalid},
		{`{"distribution":{"distributionType":"TensorFlow","workerCount":2,"parameterServerCount":1}}`, ""},
		{`{"distribution":{"distributionType":"TensorFlow","workerCount":0}}`, berth.Invalid},
		{`{"distribution":{"distributionType":"TensorFlow","workerCount":1,"parameterServerCount":-1}}`, berth.Invalid},
		{`{"distribution":{"distributionType":"Ray"}}`, berth.Unsupported},
		{`{"distribution":{"distributionType":"Horovod"}}`, berth.Invalid},
		{`{"distribution":{}}`, berth.Invalid},
		{`{"queueSettings":{"jobTier":"Spot","priority":3}}`, ""},
		{`{"queueSettings":{"jobTier":"Gold"}}`, berth.Invalid},
	} {
		var doc map[string]any
		if err := json.Unmarshal([]byte(c.doc), &doc); err != nil {
			t.Fatal(err)
		}
		doc["command"] = "true"
		props, _ := json.Marshal(doc)
		if err := command(t).Validate(props); berth.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %q", c.doc, err, c.code)
		}
	}
}

func TestFirstAttempt(t *testing.T) {
	for _, c := range []struct {
		doc      string
		ids      []berth.TaskID
		priority int
		spot     bool
	}{
		{`{}`, []berth.TaskID{"k.1"}, 0, false},
		{`{"resources":{"instanceCount":3},"queueSettings":{"jobTier":"Premium","priority":3}}`, []berth.TaskID{"k.1", "k.1-1", "k.1-2"}, 1001, false},
		{`{"queueSettings":{"jobTier":"Spot","priority":1}}`, []berth.TaskID{"k.1"}, -2001, true},
		{`{"queueSettings":{"jobTier":"Null","priority":2}}`, []berth.TaskID{"k.1"}, 0, false},
		{`{"queueSettings":{"jobTier":"Basic","priority":100000}}`, []berth.TaskID{"k.1"}, -503, false},
		// Two nodes, but only one process to run on them.
		{`{"resources":{"instanceCount":2},"distribution":{"distributionType":"TensorFlow","workerCount":1}}`, []berth.TaskID{"k.1"}, 0, false},
	} {
		s := command(t).Step(kind.Job{Name: "j", Key: "k", Status: berth.NotStarted, State: berth.JobState{Compute: "c"}, Props: json.RawMessage(c.doc)}, nil)
		var ids []berth.TaskID
		for i, task := range s.Start {
			ids = append(ids, task.ID)
			if task.Rank != i || task.Count != len(s.Start) || task.Attempt != 1 || task.Compute != "c" || task.Priority != c.priority || task.Spot != c.spot {
				t.Errorf("%s: %+v", c.doc, task)
			}
		}
		if d := cmp.Diff(c.ids, ids); d != "" || s.Status != berth.Queued {
			t.Errorf("%s: %s %s", c.doc, s.Status, d)
		}
	}
}

// gangOf writes a gang's tasks down: rank by rank a state, or how it ended, with flags after a
// slash.
func gangOf(attempt int, words ...string) []*berth.Task {
	var tasks []*berth.Task
	for rank, w := range words {
		state, flags := w, ""
		if i := slices.Index([]byte(w), '/'); i >= 0 {
			state, flags = w[:i], w[i+1:]
		}
		task := &berth.Task{
			ID: berth.TaskID(fmt.Sprintf("k.%d-%d", attempt, rank)), Attempt: attempt, Rank: rank, Count: len(words), State: berth.TaskState(state),
			Evict: slices.Contains([]byte(flags), 'E'), Stop: slices.Contains([]byte(flags), 'S'), Spot: slices.Contains([]byte(flags), 'P'),
		}
		exits := map[string]*berth.Exit{
			"ok":       {},
			"exit1":    {Code: 1, Process: rank, Log: fmt.Sprintf("user_logs/std_log_process_%d.txt", rank), Reason: fmt.Sprintf("process %d (node %d) ended with exit code 1", rank, rank)},
			"peer":     {Code: 1, Cause: "peer", Reason: "another process failed"},
			"canceled": {Code: 143, Signal: "SIGTERM", Cause: "canceled"},
			"evicted":  {Code: 143, Signal: "SIGTERM", Cause: "evicted", Reason: "the node was reclaimed"},
			"evicted0": {Cause: "evicted", Reason: "the node was reclaimed"},
			"lost":     {Code: -1, Cause: "lost", Reason: "the node is gone"},
			"staging":  {Code: -1, Cause: "staging", Reason: "no such blob"},
		}
		if e, ok := exits[state]; ok {
			task.State, task.Exit = berth.TaskDone, e
			task.Times.Ended = time.Unix(1000+int64(len(words)-rank), 0) // the higher the rank the earlier
		}
		tasks = append(tasks, task)
	}
	return tasks
}

func TestGangs(t *testing.T) {
	for _, c := range []struct {
		name   string
		tasks  []*berth.Task
		cancel bool
		status berth.JobStatus
		reason string
		stop   int
		start  int
	}{
		{"none placed", gangOf(1, "waiting", "waiting"), false, berth.Queued, "", 0, 0},
		{"placed", gangOf(1, "placed", "starting"), false, berth.Preparing, "", 0, 0},
		{"one runs", gangOf(1, "running", "starting"), false, berth.Running, "", 0, 0},
		{"one has ended", gangOf(1, "ok", "starting"), false, berth.Running, "", 0, 0},
		{"all are ending", gangOf(1, "ok", "ending"), false, berth.Finalizing, "", 0, 0},
		{"all is well", gangOf(1, "ok", "ok"), false, berth.Completed, "the command ended with exit code 0", 0, 0},
		{"one fails", gangOf(1, "running", "exit1", "starting"), false, berth.Running, "", 2, 0},
		{"failed", gangOf(1, "canceled/S", "exit1", "peer"), false, berth.Failed, "process 1 (node 1) ended with exit code 1", 0, 0},
		{"two failed", gangOf(1, "exit1", "exit1"), false, berth.Failed, "process 1 (node 1) ended with exit code 1", 0, 0},
		{"failed before it began", gangOf(1, "canceled/S", "staging"), false, berth.Failed, "node 1: no such blob", 0, 0},
		{"canceled", gangOf(1, "running", "starting"), true, berth.CancelRequested, "", 2, 0},
		{"was canceled", gangOf(1, "canceled/S", "ok"), true, berth.Canceled, "canceled by the user", 0, 0},
		{"failed, then canceled", gangOf(1, "canceled/S", "exit1"), true, berth.Failed, "process 1 (node 1) ended with exit code 1", 0, 0},
		{"a node is lost", gangOf(1, "running", "lost"), false, berth.Running, "", 1, 0},
		{"a node was lost", gangOf(1, "canceled/S", "lost"), false, berth.Failed, "node 1: the node is gone", 0, 0},
		{"a spot node was lost", gangOf(1, "canceled/SP", "lost/P"), false, berth.Queued, "attempt 2 follows, because of attempt 1: the node is gone", 0, 2},
		{"a spot node was lost and its peer noticed first", gangOf(1, "exit1/P", "lost/SP"), false, berth.Queued, "attempt 2 follows, because of attempt 1: the node is gone", 0, 2},
		{"a node is taken", gangOf(1, "running", "running/E"), false, berth.Running, "", 1, 0},
		{"the first of a gang is evicted", gangOf(1, "evicted/E", "running/S"), false, berth.Running, "", 0, 0},
		{"evicted", gangOf(1, "canceled/S", "evicted/E"), false, berth.Queued, "attempt 2 follows, because of attempt 1: the node was reclaimed", 0, 2},
		{"evicted by the target itself", gangOf(3, "evicted"), false, berth.Queued, "attempt 4 follows, because of attempt 3: the node was reclaimed", 0, 1},
		{"its peers broke first", gangOf(1, "exit1", "evicted/E"), false, berth.Queued, "attempt 2 follows, because of attempt 1: the node was reclaimed", 0, 2},
		{"evicted and canceled", gangOf(1, "canceled/S", "evicted/E"), true, berth.Canceled, "canceled by the user", 0, 0},
		{"it saved and left when asked", gangOf(1, "evicted0/E"), false, berth.Queued, "attempt 2 follows, because of attempt 1: the node was reclaimed", 0, 1},
		{"it was faster", gangOf(1, "ok/E"), false, berth.Completed, "the command ended with exit code 0", 0, 0},
		{"it failed before it could be evicted", gangOf(1, "exit1/E"), false, berth.Failed, "process 0 (node 0) ended with exit code 1", 0, 0},
		{"one was faster, its peer was stopped", gangOf(1, "canceled/S", "ok/E"), false, berth.Queued, "attempt 2 follows, because of attempt 1: its node was preempted", 0, 2},
		{"it had failed when the node was taken", gangOf(1, "exit1", "canceled/SE"), false, berth.Failed, "process 0 (node 0) ended with exit code 1", 0, 0},
		{"the second attempt waits", append(gangOf(1, "evicted/E"), gangOf(2, "waiting")...), false, berth.Queued, "attempt 2, because of attempt 1: the node was reclaimed; it is waiting to be scheduled", 0, 0},
		{"the second attempt ends well", append(gangOf(1, "evicted/E"), gangOf(2, "ok")...), false, berth.Completed, "the command ended with exit code 0", 0, 0},
		{"all were told to", gangOf(1, "peer", "peer"), false, berth.Failed, "node 0: another process failed", 0, 0},
	} {
		props := json.RawMessage(fmt.Sprintf(`{"resources":{"instanceCount":%d}}`, c.tasks[0].Count))
		s := command(t).Step(kind.Job{Name: "j", Key: "k", Status: berth.Running, State: berth.JobState{Cancel: c.cancel}, Props: props}, c.tasks)
		if s.Status != c.status || s.State.Reason != c.reason || len(s.Stop) != c.stop || len(s.Start) != c.start {
			t.Errorf("%s: %s %q, stops %v, starts %d", c.name, s.Status, s.State.Reason, s.Stop, len(s.Start))
		}
		for _, task := range s.Start {
			if task.Attempt != c.tasks[0].Attempt+1 || s.State.Attempt != task.Attempt {
				t.Errorf("%s: attempt %d of a job at %d", c.name, task.Attempt, s.State.Attempt)
			}
		}
		if s.Status == berth.Failed && (s.State.Exit == nil || s.State.Exit.OK()) {
			t.Errorf("%s: exit %+v", c.name, s.State.Exit)
		}
	}
}

func TestGangMeasures(t *testing.T) {
	at := func(n int64) time.Time { return time.Unix(n, 0) }
	tasks := gangOf(1, "ok", "ok")
	tasks[0].Times = berth.Waterfall{Started: at(5), FirstOutput: at(6), Ended: at(20)}
	tasks[1].Times = berth.Waterfall{Started: at(9), FirstOutput: at(9), Ended: at(15)}
	tasks[0].Usage = berth.Usage{MemoryBytes: 3, CPUPercent: 90}
	tasks[1].Usage = berth.Usage{MemoryBytes: 7, CPUPercent: 10}
	s := command(t).Step(kind.Job{Key: "k", Status: berth.Running, State: berth.JobState{Times: berth.Waterfall{Submitted: at(1)}}}, tasks)
	want := berth.JobState{
		Times: berth.Waterfall{Submitted: at(1), Started: at(9), FirstOutput: at(6), Ended: at(20)}, Usage: berth.Usage{MemoryBytes: 7, CPUPercent: 90},
		Exit: &berth.Exit{}, Reason: "the command ended with exit code 0",
	}
	if d := cmp.Diff(want, s.State); d != "" {
		t.Error(d)
	}
}

// TestGangLaws lets jobs of several nodes live: whatever happens to their tasks, in whatever order,
// no step is taken twice, an attempt begins only when the one before is over and was cut short by
// an eviction, and the end of a job is that of its last attempt.
func TestGangLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(1, 3).Draw(t, "nodes")
		spot := rapid.Bool().Draw(t, "spot")
		j := kind.Job{
			Name: "j", Key: "k", Status: berth.NotStarted, State: berth.JobState{Compute: "c"},
			Props: json.RawMessage(fmt.Sprintf(`{"resources":{"instanceCount":%d}}`, count)),
		}
		w := &harness{t: t, k: command(t), j: j, clock: time.Unix(1, 0), spot: spot}
		w.step()
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			if w.j.Status.Terminal() {
				break
			}
			w.happen()
			w.step()
		}
		for i := 0; !w.j.Status.Terminal(); i++ { // let it come to its end
			if i > 100 {
				t.Fatalf("the job does not end: %s", w)
			}
			for _, task := range w.tasks {
				if task.State != berth.TaskDone {
					w.end(task, "")
				}
			}
			w.step()
		}
		w.over(count)
	})
}

type harness struct {
	t     *rapid.T
	k     kind.Kind
	j     kind.Job
	tasks []*berth.Task
	clock time.Time
	spot  bool
}

func (w *harness) String() string {
	b, _ := json.Marshal(w.tasks)
	return fmt.Sprintf("%s %s", w.j.Status, b)
}

// step takes one step and checks that it is the only one.
func (w *harness) step() {
	s := w.k.Step(w.j, w.tasks)
	if d := cmp.Diff(s, w.k.Step(w.j, w.tasks)); d != "" {
		w.t.Fatalf("not deterministic: %s", d)
	}
	if len(s.Start) > 0 {
		before := 0
		cut := len(w.tasks) == 0
		for _, task := range w.tasks {
			if task.State != berth.TaskDone {
				w.t.Fatalf("an attempt begins before %s is over", task.ID)
			}
			before = max(before, task.Attempt)
		}
		for _, task := range w.tasks {
			cut = cut || task.Attempt == before && (task.Evict || task.Spot && task.Exit.Cause == "lost")
		}
		if !cut || w.j.State.Cancel || s.Start[0].Attempt != before+1 {
			w.t.Fatalf("attempt %d after %s", s.Start[0].Attempt, w)
		}
	}
	for i := range s.Start {
		task := s.Start[i]
		task.State, task.Spot = berth.TaskWaiting, w.spot
		w.tasks = append(w.tasks, &task)
	}
	for _, id := range s.Stop {
		for _, task := range w.tasks {
			if task.ID == id {
				if task.Stop || task.State == berth.TaskDone {
					w.t.Fatalf("%s is stopped twice", id)
				}
				task.Stop = true
			}
		}
	}
	w.j.Status, w.j.State = s.Status, s.State
	again := w.k.Step(w.j, w.tasks)
	if len(again.Start)+len(again.Stop) > 0 {
		w.t.Fatalf("the step was taken twice: %+v then %+v", s, again)
	}
	w.j.Status, w.j.State = again.Status, again.State
	if d := cmp.Diff(again, w.k.Step(w.j, w.tasks)); d != "" {
		w.t.Fatalf("a step that changes nothing changes something: %s", d)
	}
}

// happen lets one thing happen.
func (w *harness) happen() {
	w.clock = w.clock.Add(time.Second)
	if rapid.IntRange(0, 20).Draw(w.t, "cancel") == 0 {
		w.j.State.Cancel = true
		return
	}
	var open []*berth.Task
	for _, task := range w.tasks {
		if task.State != berth.TaskDone {
			open = append(open, task)
		}
	}
	task := rapid.SampledFrom(open).Draw(w.t, "task")
	switch rapid.SampledFrom([]string{"move", "move", "end", "fail", "lost", "evict"}).Draw(w.t, "event") {
	case "move":
		order := []berth.TaskState{berth.TaskWaiting, berth.TaskPlaced, berth.TaskStarting, berth.TaskRunning, berth.TaskEnding}
		if i := slices.Index(order, task.State); i < len(order)-1 {
			task.State = order[i+1]
		}
	case "end":
		w.end(task, "")
	case "fail":
		w.end(task, "fail")
	case "lost":
		w.end(task, "lost")
	case "evict":
		task.Evict = task.Evict || !task.Stop
	}
}

// end ends a task: as it was asked to, if it was, and well otherwise.
func (w *harness) end(task *berth.Task, how string) {
	task.State, task.Times.Ended = berth.TaskDone, w.clock
	switch {
	case how == "lost":
		task.Exit = &berth.Exit{Code: -1, Cause: "lost", Reason: "the node is gone"}
	case how == "fail":
		task.Exit = &berth.Exit{Code: 1, Reason: "it failed"}
	case task.Evict:
		task.Exit = &berth.Exit{Code: 143, Cause: "evicted"}
	case task.Stop:
		task.Exit = &berth.Exit{Code: 143, Cause: "canceled"}
	default:
		task.Exit = &berth.Exit{}
	}
}

// over checks the end of a job.
func (w *harness) over(count int) {
	attempts := map[int]int{}
	last := 0
	for _, task := range w.tasks {
		if task.State != berth.TaskDone {
			w.t.Fatalf("the job is over before %s: %s", task.ID, w)
		}
		attempts[task.Attempt]++
		last = max(last, task.Attempt)
	}
	for n := 1; n <= last; n++ {
		if attempts[n] != count {
			w.t.Fatalf("attempt %d has %d nodes of %d", n, attempts[n], count)
		}
	}
	well := true
	for _, task := range w.tasks {
		if task.Attempt == last && !task.Exit.OK() {
			well = false
		}
	}
	if last > 0 && well != (w.j.Status == berth.Completed) || w.j.State.Reason == "" {
		w.t.Fatalf("%s: %q after %s", w.j.Status, w.j.State.Reason, w)
	}
	if w.j.Status == berth.Canceled && !w.j.State.Cancel {
		w.t.Fatalf("nobody canceled %s", w)
	}
	s := w.k.Step(w.j, w.tasks)
	if s.Status != w.j.Status || len(s.Start)+len(s.Stop) > 0 {
		w.t.Fatalf("a job that was %s became %+v", w.j.Status, s)
	}
}
