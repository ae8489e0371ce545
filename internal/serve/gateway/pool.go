package gateway

import (
	"cmp"
	"container/list"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// A slot is one worker of a replica. It has at most one request at a time.
type slot struct {
	address string
	job     string // of its replica
	secret  string // which it asks for
	pure    bool
	busy    bool
	gone    bool // its replica gets no more requests
	down    bool // it could not be reached when it was last called
	index   int  // among the workers of its replica, of which several may have one address

	keeping
}

func (s *slot) key() string { return s.job + " " + s.address + " " + strconv.Itoa(s.index) }

// A pool is the workers of a deployment, and the requests that wait for one of them. Choosing a
// worker and taking it is one step, so that a replica which is drained misses no request.
type pool struct {
	mu      sync.Mutex
	slots   []*slot
	next    int        // where to look for a free one first
	waiting *list.List // of chan *slot, the first to come first

	secret func(job string) string
	stats  stats

	replicas map[string]string      // state by job
	usage    map[string]berth.Usage // by job, as last measured

	// What autoscaling reads: how long workers were at work and requests waited, all together, up
	// to summed.
	atWork  int
	busySum time.Duration
	waitSum time.Duration
	summed  time.Time

	failure *failure // of the deployment, where none of its replicas are left

	demand func()    // says that requests wait, or come
	asked  time.Time // when it was last called for one that waits
	told   time.Time // when it was last called for one that came
}

// sum adds what passed since the last change to the sums.
func (p *pool) sum(now time.Time) {
	if past := now.Sub(p.summed); !p.summed.IsZero() && past > 0 {
		p.busySum += time.Duration(p.atWork) * past
		p.waitSum += time.Duration(p.waiting.Len()) * past
	}
	p.summed = now
}

// How often demand is called at most for requests that wait, and for those that come: the leader
// sees only what comes to itself, and would take the replicas for idle.
const (
	askEvery  = 500 * time.Millisecond
	tellEvery = 5 * time.Second
)

// ask calls demand because a request waits.
func (p *pool) ask() { p.say(&p.asked, askEvery) }

// tell calls demand because a request came.
func (p *pool) tell() { p.say(&p.told, tellEvery) }

// say calls demand, but not again and again.
func (p *pool) say(last *time.Time, every time.Duration) {
	p.mu.Lock()
	f := p.demand
	if now := time.Now(); f != nil && now.Sub(*last) > every {
		*last = now
	} else {
		f = nil
	}
	p.mu.Unlock()
	if f != nil {
		f()
	}
}

// minQueue is how many requests may wait for a deployment at once, however few workers it has.
// Where it has more workers, as many as these may: no fewer than Azure lets wait.
const minQueue = 100

func newPool(secret func(job string) string) *pool {
	return &pool{waiting: list.New(), secret: secret}
}

// update makes the pool that of the replicas that are ready. Workers that stay keep their request.
func (p *pool) update(replicas []berth.Replica) {
	p.mu.Lock()
	defer p.mu.Unlock()
	had := map[string]*slot{}
	for _, s := range p.slots {
		had[s.key()] = s
	}
	p.slots = nil
	for _, r := range replicas {
		if r.State != berth.ReplicaReady {
			continue
		}
		for i, at := range r.Addresses {
			fresh := &slot{address: at, job: r.Job, pure: r.Pure, index: i}
			s := had[fresh.key()]
			if s == nil {
				s = fresh
				s.secret = p.secret(r.Job)
			}
			delete(had, s.key())
			s.gone = false
			p.slots = append(p.slots, s)
		}
	}
	for _, s := range had {
		s.gone = true
		if s.busy {
			p.slots = append(p.slots, s) // until its request is answered
		} else {
			s.drop()
		}
	}
	for p.waiting.Len() > 0 {
		s := p.free(nil)
		if s == nil {
			return
		}
		p.hand(s)
	}
}

// failure is of a deployment that has failed.
type failure struct{ why string }

func (f *failure) Error() string { return "the deployment has failed: " + f.why }

// settle notes whether the deployment has failed. Where it has no worker then, requests that wait
// for one wait in vain.
func (p *pool) settle(failed bool, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure = nil
	if !failed || slices.ContainsFunc(p.slots, func(s *slot) bool { return !s.gone }) {
		return
	}
	p.failure = &failure{why}
	p.sum(time.Now())
	for e := p.waiting.Front(); e != nil; e = p.waiting.Front() {
		p.waiting.Remove(e)
		e.Value.(chan *slot) <- nil //nolint:forcetypeassert // nothing else is in the list
	}
}

// dead is not nil where no request can be answered before the deployment is changed.
func (p *pool) dead() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure == nil {
		return nil
	}
	return p.failure
}

// free is a worker without a request, the least recently looked at first; nil if there is none.
func (p *pool) free(not []string) *slot {
	for i := range p.slots {
		s := p.slots[(p.next+i)%len(p.slots)]
		if !s.busy && !s.gone && !slices.Contains(not, s.address) {
			p.next = (p.next + i + 1) % len(p.slots)
			return s
		}
	}
	return nil
}

// hand gives a worker to who waits longest, even if it failed them before: it is free again because
// it has answered since.
func (p *pool) hand(s *slot) {
	p.sum(time.Now())
	e := p.waiting.Front()
	p.waiting.Remove(e)
	s.busy = true
	p.atWork++
	e.Value.(chan *slot) <- s //nolint:forcetypeassert // nothing else is in the list
}

// errFull and errSlow say that a request was not given to any worker.
var (
	errFull = berth.Errorf(berth.Limit, "too many requests wait for the deployment already: try again later, or raise instance_count")
	errSlow = berth.Errorf(berth.Limit, "no replica of the deployment became free in time: try again later, or raise instance_count")
)

// take waits for a worker, in order and for at most wait; or, where no worker can be reached, until
// one can, for at most most.
func (p *pool) take(ctx context.Context, wait, most time.Duration, not []string) (*slot, error) {
	p.mu.Lock()
	if p.waiting.Len() == 0 {
		if s := p.free(not); s != nil {
			p.sum(time.Now())
			s.busy = true
			p.atWork++
			p.mu.Unlock()
			return s, nil
		}
	}
	if p.failure != nil {
		defer p.mu.Unlock()
		return nil, p.failure
	}
	if p.waiting.Len() >= max(minQueue, len(p.slots)) {
		p.mu.Unlock()
		return nil, errFull
	}
	turn := make(chan *slot, 1)
	p.sum(time.Now())
	e := p.waiting.PushBack(turn)
	p.mu.Unlock()
	p.ask()
	s, err := p.wait(ctx, turn, wait, most)
	if s != nil {
		return s, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case s := <-turn: // it came at the last moment
		if s == nil {
			return nil, err
		}
		if ctx.Err() == nil {
			return s, nil
		}
		p.giveLocked(s)
	default:
		p.sum(time.Now())
		p.waiting.Remove(e)
	}
	return nil, err
}

// lookEvery is how often a request that waits for a replica to start looks whether there is one.
const lookEvery = time.Second

// wait waits for a turn.
func (p *pool) wait(ctx context.Context, turn <-chan *slot, wait, most time.Duration) (*slot, error) {
	begun := time.Now()
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		select {
		case s := <-turn:
			if s == nil {
				return nil, cmp.Or(p.dead(), error(errSlow)) // it may have been changed since
			}
			return s, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-over.C:
			if p.reachable() || time.Since(begun) >= most {
				return nil, errSlow
			}
			over.Reset(lookEvery)
		}
	}
}

// give returns a worker.
func (p *pool) give(s *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.giveLocked(s)
}

func (p *pool) giveLocked(s *slot) {
	p.sum(time.Now())
	s.busy = false
	p.atWork--
	switch {
	case s.gone:
		s.drop()
		p.slots = slices.DeleteFunc(p.slots, func(x *slot) bool { return x == s })
	case p.waiting.Len() > 0:
		p.hand(s)
	}
}

// busy says whether a replica has a request.
func (p *pool) busy(job string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.slots, func(s *slot) bool { return s.job == job && (s.busy || !s.gone) })
}

// ready says whether there is any worker.
func (p *pool) ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.slots, func(s *slot) bool { return !s.gone })
}

// reachable says whether there is any worker that answered when it was last called.
func (p *pool) reachable() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.slots, func(s *slot) bool { return !s.gone && !s.down })
}

// setDown notes whether a worker could be reached.
func (p *pool) setDown(s *slot, down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.down = down
}

// empty says whether it has no workers any more, and nobody waits.
func (p *pool) empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.slots) == 0 && p.waiting.Len() == 0
}

// isGone says whether the replica of a worker gets no more requests.
func (p *pool) isGone(s *slot) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.gone
}
