package gateway

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/berthml/berth"
)

func ready(job string, addresses ...string) berth.Replica {
	return berth.Replica{Job: job, State: berth.ReplicaReady, Addresses: addresses}
}

func (p *pool) mustTake(t *testing.T) *slot {
	t.Helper()
	s, err := p.take(t.Context(), time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPoolOneRequestEach: no worker has two requests, and who waits gets the next that is free in
// the order in which they came.
func TestPoolOneRequestEach(t *testing.T) {
	p := newPool()
	p.update([]berth.Replica{ready("a", "1", "2")})
	first, second := p.mustTake(t), p.mustTake(t)
	if first == second {
		t.Fatal("one worker has two requests")
	}
	turn := make(chan int)
	for i := range 2 {
		go func() {
			s, err := p.take(t.Context(), time.Minute, nil)
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
	p := newPool()
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
	p := newPool()
	if _, err := p.take(t.Context(), time.Nanosecond, nil); err != errSlow {
		t.Errorf("with nothing ready: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for range maxWaiting {
		all.Go(func() { _, _ = p.take(ctx, time.Hour, nil) })
	}
	for {
		p.mu.Lock()
		n := p.waiting.Len()
		p.mu.Unlock()
		if n == maxWaiting {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := p.take(t.Context(), time.Hour, nil); err != errFull {
		t.Errorf("with a full queue: %v", err)
	}
	cancel()
	all.Wait()
	if !p.empty() {
		t.Error("something is left")
	}
}

// TestPoolTells: requests that come are told of, not each of them, and one that waits is always.
func TestPoolTells(t *testing.T) {
	p, calls := newPool(), 0
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
