package crash_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"
)

// A fault is something that happens to a server or its runners. do says whether it could.
type fault struct {
	name   string
	weight int // how often it happens, relative to others
	do     func(w *chaos, rng *rand.Rand) bool
}

// processFaults are those of processes. SIGTERM is what service managers send, SIGKILL what they
// send after that.
var processFaults = []fault{
	{"server killed", 3, func(w *chaos, _ *rand.Rand) bool { return w.signal(syscall.SIGKILL, w.server()) }},
	{"server stopped", 4, func(w *chaos, _ *rand.Rand) bool { return w.signal(syscall.SIGTERM, w.server()) }},
	{"runner killed", 5, func(w *chaos, rng *rand.Rand) bool { return w.signal(syscall.SIGKILL, one(w.hosts(), rng)...) }},
	{"runner stopped", 3, func(w *chaos, rng *rand.Rand) bool { return w.signal(syscall.SIGTERM, one(w.hosts(), rng)...) }},
	{"everything killed", 1, func(w *chaos, _ *rand.Rand) bool { return w.signal(syscall.SIGKILL, append(w.hosts(), w.server())...) }},
	{"everything stopped", 1, func(w *chaos, _ *rand.Rand) bool { return w.signal(syscall.SIGTERM, append(w.hosts(), w.server())...) }},
}

// homeMoved moves the home under whatever runs in it.
var homeMoved = fault{"home moved", 1, func(w *chaos, _ *rand.Rand) bool { return w.move() }}

// one is one of some processes, none of none.
func one(pids []int, rng *rand.Rand) []int {
	if len(pids) == 0 {
		return nil
	}
	return pids[rng.IntN(len(pids)):][:1]
}

// signal sends a signal to processes that may be gone.
func (w *chaos) signal(s syscall.Signal, pids ...int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pid := range pids {
		if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			w.t.Error(err)
		}
	}
	return len(pids) > 0
}

// pick is one of some faults, by their weights.
func pick(faults []fault, rng *rand.Rand) fault {
	all := 0
	for _, f := range faults {
		all += f.weight
	}
	n := rng.IntN(all)
	for _, f := range faults {
		if n -= f.weight; n < 0 {
			return f
		}
	}
	panic("the weights are more than their sum")
}

// killing submits jobs while faults happen at random moments, and writes something else in the
// window that each of them opens.
func (w *chaos) killing(jobs, faults int, seed uint64, kinds []fault) {
	t := w.t
	rng := rand.New(rand.NewPCG(seed, 7))
	var submitted sync.WaitGroup
	submitted.Go(func() {
		for i := range jobs {
			w.submit(i)
		}
	})
	l := &ledger{acked: map[string]bool{}, other: map[string]int{}}
	counts := map[string]int{}
	for n := 0; n < faults; {
		time.Sleep(time.Duration(20+rng.IntN(280)) * time.Millisecond)
		f := pick(kinds, rng)
		if !f.do(w, rng) {
			continue
		}
		counts[f.name]++
		n++
		for i := range 5 {
			l.write(w, fmt.Sprintf("budgets/user:f%dw%d", n, i), map[string]any{"amount": 1000, "period": "month"})
		}
	}
	submitted.Wait()
	lost := 0
	for i := range jobs {
		var o outcome
		w.until("end of "+jobName(i), 5*time.Minute, func() (bool, error) {
			var err error
			o, err = w.outcome(jobName(i))
			return err == nil && (o.Status == "Completed" || o.Status == "Failed"), fmt.Errorf("%+v %w", o, err)
		})
		if w.check(i, o) {
			lost++
		}
	}
	gone := l.check(w)
	t.Logf("%d faults: %v", faults, counts)
	t.Logf("%d writes acknowledged (%d jobs, %d others; the other requests: %v): %d lost, %d doubled", jobs+len(l.acked), jobs, len(l.acked), l.other, gone, w.doubled)
	t.Logf("%d jobs: %d lost with a reason, the others have their exit code and whole log", jobs, lost)
	if lost > jobs/4 {
		t.Errorf("%d of %d jobs were lost", lost, jobs)
	}
}
