package drivertest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// Array is tasks that were started together and have not begun. None of their runners asks by
// itself.
type Array struct {
	Driver  driver.Driver
	Name    string // as in berth.Turn
	Tasks   []berth.TaskID
	Handles []driver.Handle
	// Reopen opens the target again as a server does that was killed and started again. Nil when
	// the target does not survive its driver.
	Reopen func(t *testing.T) driver.Driver
}

// Turns tests the optional interface Turner by asking as runners do. make starts so many tasks.
func Turns(t *testing.T, make func(t *testing.T, n int) Array) {
	for _, tt := range []struct {
		name string
		n    int
		run  func(*testing.T, Array)
	}{
		{"Announced", 2, turnsAnnounced},
		{"Own", 6, turnsOwn},
		{"Once", 200, turnsOnce},
		{"Stopped", 6, turnsStopped},
		{"Reopen", 6, turnsReopen},
		{"Denied", 3, turnsDenied},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, make(t, tt.n)) })
	}
}

// next is what a runner is told, which had the task ended.
func (a Array) next(t *testing.T, runner int, ended ...int) int {
	t.Helper()
	ask := berth.Turn{Array: a.Name, Runner: runner}
	if len(ended) > 0 {
		ask.Ended = &ended[0]
	}
	answer, err := a.Driver.(driver.Turner).Turn(t.Context(), a.Tasks[runner], ask)
	if err != nil {
		t.Fatalf("runner %d: %v", runner, err)
	}
	return answer.Task
}

func (a Array) want(t *testing.T, want, runner int, ended ...int) {
	t.Helper()
	if got := a.next(t, runner, ended...); got != want {
		t.Errorf("runner %d, which had %v, is given %d instead of %d", runner, ended, got, want)
	}
}

func turnsAnnounced(t *testing.T, a Array) {
	var info driver.Info
	var err error
	if d, ok := a.Driver.(driver.Describer); ok {
		info = d.Describe()
	} else if info, err = a.Driver.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !info.Turns {
		t.Error("Info does not announce Turner")
	}
}

// turnsOwn: a runner has its own task first, then others, and hears the same when it asks again; a
// runner whose task was given to another has none.
func turnsOwn(t *testing.T, a Array) {
	var had []int
	for task := a.next(t, 2); task != berth.NoTurn; task = a.next(t, 2, task) {
		a.want(t, task, 2, had[max(len(had)-1, 0):]...)
		if had = append(had, task); len(had) > len(a.Tasks) {
			break
		}
	}
	if len(had) == 0 || had[0] != 2 {
		t.Fatalf("runner 2 is given %d", had)
	}
	last := had[len(had)-1]
	slices.Sort(had)
	if !slices.Equal(had, []int{0, 1, 2, 3, 4, 5}) {
		t.Errorf("one runner was given %v", had)
	}
	a.want(t, berth.NoTurn, 2, last)
	a.want(t, berth.NoTurn, 3)
	if o := observed(t.Context(), t, a)[a.Tasks[0]]; o.State != berth.TaskDone || !o.Exit.OK() {
		t.Errorf("a task that has ended: %+v", o)
	}
}

// turnsOnce: however many runners ask at the same time, each task is given to one of them.
func turnsOnce(t *testing.T, a Array) {
	var mu sync.Mutex
	given := map[int]int{}
	var wg sync.WaitGroup
	for runner := range 20 {
		wg.Go(func() {
			for task := a.next(t, runner); task != berth.NoTurn; task = a.next(t, runner, task) {
				mu.Lock()
				given[task]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for i := range a.Tasks {
		if given[i] != 1 {
			t.Errorf("task %d was given %d times", i, given[i])
		}
	}
}

// turnsStopped: a task that was stopped before it began is not given to anybody, and neither its
// runner nor one that had it when it was stopped takes another: a signal may be on its way to them.
func turnsStopped(t *testing.T, a Array) {
	stop := func(i int) {
		t.Helper()
		if err := a.Driver.Stop(t.Context(), a.Handles[i], driver.Stop{Grace: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	a.want(t, 0, 0)
	stop(5)
	a.want(t, berth.NoTurn, 5)
	second := a.next(t, 0, 0)
	if second == berth.NoTurn || second == 5 {
		t.Fatalf("runner 0 is given %d", second)
	}
	stop(second)
	a.want(t, berth.NoTurn, 0, second)
	runner := 1 // has its own task still
	if second == 1 {
		runner = 2
	}
	given := []int{0, second, 5}
	for task := a.next(t, runner); task != berth.NoTurn; task = a.next(t, runner, task) {
		if slices.Contains(given, task) {
			t.Fatalf("runner %d is given %d after %v", runner, task, given)
		}
		given = append(given, task)
	}
	if len(given) != len(a.Tasks) {
		t.Errorf("given or stopped: %v", given)
	}
}

// turnsReopen: the next server gives the same answers, and nothing again.
func turnsReopen(t *testing.T, a Array) {
	if a.Reopen == nil {
		t.Skip("the target does not survive its driver")
	}
	a.want(t, 1, 1)
	second := a.next(t, 1, 1)
	a.Driver = a.Reopen(t)
	a.want(t, second, 1, 1)
	a.want(t, second, 1)
	a.want(t, berth.NoTurn, second)
	given := map[int]bool{1: true, second: true}
	for task := a.next(t, 1, second); task != berth.NoTurn; task = a.next(t, 1, task) {
		if given[task] {
			t.Fatalf("task %d is given again", task)
		}
		given[task] = true
	}
	if len(given) != len(a.Tasks) {
		t.Errorf("given: %v", given)
	}
}

// turnsDenied: a runner asks for itself alone, and of an array that is over there is nothing left.
func turnsDenied(t *testing.T, a Array) {
	for _, runner := range []int{1, -1, len(a.Tasks)} {
		answer, err := a.Driver.(driver.Turner).Turn(t.Context(), a.Tasks[0], berth.Turn{Array: a.Name, Runner: runner})
		if berth.CodeOf(err) != berth.Denied || answer.Task != berth.NoTurn {
			t.Errorf("the runner of task 0, as number %d: %+v, %v", runner, answer, err)
		}
	}
	answer, err := a.Driver.(driver.Turner).Turn(t.Context(), a.Tasks[0], berth.Turn{Array: "other"})
	if err != nil || answer.Task != berth.NoTurn {
		t.Errorf("an array that nobody knows: %+v, %v", answer, err)
	}
}

func observed(ctx context.Context, t *testing.T, a Array) map[berth.TaskID]driver.Observed {
	t.Helper()
	all, err := a.Driver.Observe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	out := map[berth.TaskID]driver.Observed{}
	for _, o := range all {
		out[o.Task] = o
	}
	return out
}

// eachOnce checks that each of many tasks that are started at the same time runs once, on targets
// whose own runners take several in turn.
func eachOnce(t *testing.T, ctx context.Context, f Fixture) {
	info, err := f.Driver.Probe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !info.Turns {
		t.Skip("each runner has one task")
	}
	all := make([]berth.Launch, 40)
	var wg sync.WaitGroup
	for i := range all {
		all[i] = f.Launch("echo x")
		wg.Go(func() {
			if _, err := f.Driver.Start(ctx, all[i]); err != nil {
				t.Errorf("Start: %v", err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for _, l := range all {
		if o := Wait(ctx, t, f.Driver, l.Task); !o.Exit.OK() {
			t.Errorf("%s: exit %+v", l.Task, o.Exit)
		}
		once(t, f, l)
	}
}
