package gateway

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
)

func ready(job string, addresses ...string) berth.Replica {
	return berth.Replica{Job: job, State: berth.ReplicaReady, Addresses: addresses}
}

func (p *pool) mustTake(t *testing.T) *slot {
	t.Helper()
	s, err := p.take(t.Context(), time.Minute, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPoolOneRequestEach: no worker has two requests, and who waits gets the next that is free in
// the order in which they came.
func TestPoolOneRequestEach(t *testing.T) {
	p := newPool(noSecret)
	p.update([]berth.Replica{ready("a", "1", "2")})
	first, second := p.mustTake(t), p.mustTake(t)
	if first == second {
		t.Fatal("one worker has two requests")
	}
	turn := make(chan int)
	for i := range 2 {
		go func() {
			s, err := p.take(t.Context(), time.Minute, 0, nil)
			if err != nil {
				t.Error(err)
			}
			turn <- i
			p.give(s)
		}()
		for { // until it waits
			p.mu.Lock()
			n := p.waiting.Len()
			p.mu.Unlock()
			if n == i+1 {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	p.give(first)
	if got := <-turn; got != 0 {
		t.Error("the second came first")
	}
	if got := <-turn; got != 1 {
		t.Error("the second never came")
	}
	p.give(second)
}

// TestPoolDrain: a replica that is drained gets no more requests, and is busy until its last one is
// answered.
func TestPoolDrain(t *testing.T) {
	p := newPool(noSecret)
	p.update([]berth.Replica{ready("a", "1")})
	s := p.mustTake(t)
	p.update([]berth.Replica{ready("b", "2")})
	if !p.busy("a") {
		t.Error("the replica seems idle with a request in it")
	}
	if other := p.mustTake(t); other.job != "b" {
		t.Errorf("a request went to %s", other.job)
	}
	p.give(s)
	if p.busy("a") {
		t.Error("the replica seems busy after its last request")
	}
}

func TestPoolLimits(t *testing.T) {
	p := newPool(noSecret)
	if _, err := p.take(t.Context(), time.Nanosecond, 0, nil); err != errSlow {
		t.Errorf("with nothing ready: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for range minQueue {
		all.Go(func() { _, _ = p.take(ctx, time.Hour, 0, nil) })
	}
	for {
		p.mu.Lock()
		n := p.waiting.Len()
		p.mu.Unlock()
		if n == minQueue {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := p.take(t.Context(), time.Hour, 0, nil); err != errFull {
		t.Errorf("with a full queue: %v", err)
	}
	cancel()
	all.Wait()
	if !p.empty() {
		t.Error("something is left")
	}
}

// TestPoolQueue: a deployment with many workers has as many requests wait as it has workers.
func TestPoolQueue(t *testing.T) {
	p := newPool(noSecret)
	var all []berth.Replica
	for i := range 2 * minQueue {
		all = append(all, ready("j"+strconv.Itoa(i), strconv.Itoa(i)))
	}
	p.update(all)
	for range all {
		p.mustTake(t)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	errs := make(chan error, len(all))
	for range all {
		group.Go(func() {
			_, err := p.take(ctx, time.Hour, 0, nil)
			errs <- err
		})
	}
	for waiting := 0; waiting < len(all); {
		select {
		case err := <-errs:
			t.Fatalf("with %d waiting: %v", waiting, err)
		case <-time.After(time.Millisecond):
		}
		p.mu.Lock()
		waiting = p.waiting.Len()
		p.mu.Unlock()
	}
	if _, err := p.take(t.Context(), time.Hour, 0, nil); err != errFull {
		t.Errorf("with a full queue: %v", err)
	}
	cancel()
	group.Wait()
}

// TestPoolTells: requests that come are told of, not each of them, and one that waits is always.
func TestPoolTells(t *testing.T) {
	p, calls := newPool(noSecret), 0
	p.demand = func() { calls++ }
	p.tell()
	p.told = p.told.Add(time.Minute) // so that no time passes
	if p.tell(); calls != 1 {
		t.Errorf("%d calls for two requests", calls)
	}
	if p.ask(); calls != 2 {
		t.Error("nobody hears of a request that waits after one that came")
	}
	p.told = time.Now().Add(-2 * tellEvery)
	if p.tell(); calls != 3 {
		t.Error("nobody hears of later requests")
	}
}

// TestPoolOfFailed: requests that wait for a deployment which then fails are told why, and so are
// those that come later; once it is changed they wait again.
func TestPoolOfFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(noSecret)
		told := make(chan error, 3)
		for range cap(told) {
			go func() {
				_, err := p.take(t.Context(), time.Hour, time.Hour, nil)
				told <- err
			}()
		}
		synctest.Wait()
		p.settle(true, "no weights")
		for range cap(told) {
			if err := <-told; err == nil || !strings.Contains(err.Error(), "no weights") {
				t.Errorf("one that waited: %v", err)
			}
		}
		if _, err := p.take(t.Context(), time.Hour, time.Hour, nil); err == nil || p.dead() == nil {
			t.Errorf("one that came later: %v", err)
		}
		p.update([]berth.Replica{ready("old", "127.0.0.1:1")})
		if p.settle(true, "no weights"); p.dead() != nil {
			t.Error("what still serves is not dead")
		}
		p.give(p.mustTake(t))
		p.update(nil)
		if p.settle(false, ""); p.dead() != nil {
			t.Error("a changed deployment is still dead")
		}
	})
}

func noSecret(string) string { return "" }

// TestPoolWaitsForReplacement: a request waits longer than it would for a worker where none can be
// reached, since another is being started.
func TestPoolWaitsForReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(noSecret)
		p.update([]berth.Replica{ready("a", "1")})
		s := p.mustTake(t)
		if _, err := p.take(t.Context(), time.Second, time.Minute, nil); err != errSlow {
			t.Errorf("behind one that works: %v", err)
		}
		p.setDown(s, true)
		begun := time.Now()
		if _, err := p.take(t.Context(), time.Second, time.Minute, nil); err != errSlow || time.Since(begun) < time.Minute {
			t.Errorf("behind one that is gone: %v after %v", err, time.Since(begun))
		}
		go func() {
			time.Sleep(30 * time.Second)
			p.update([]berth.Replica{ready("b", "2")})
		}()
		if s, err := p.take(t.Context(), time.Second, time.Minute, nil); err != nil || s.job != "b" {
			t.Errorf("after another has started: %v %v", s, err)
		}
	})
}
