package gateway

import (
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
	pure    bool
	busy    bool
	gone    bool // its replica gets no more requests
	index   int  // among the workers of its replica, of which several may have one address
}

func (s *slot) key() string { return s.job + " " + s.address + " " + strconv.Itoa(s.index) }

// A pool is the workers of a deployment, and the requests that wait for one of them. Choosing a
// worker and taking it is one step, so that a replica which is drained misses no request.
type pool struct {
	mu      sync.Mutex
	slots   []*slot
	next    int        // where to look for a free one first
	waiting *list.List // of chan *slot, the first to come first

	stats stats

	// What autoscaling reads: how long workers were at work and requests waited, all together, up
	// to summed.
	atWork  int
	busySum time.Duration
	waitSum time.Duration
	summed  time.Time

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

// maxWaiting is how many requests may wait for a deployment at once.
const maxWaiting = 100

func newPool() *pool { return &pool{waiting: list.New()} }

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

// take waits for a worker, in order and for at most wait.
func (p *pool) take(ctx context.Context, wait time.Duration, not []string) (*slot, error) {
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
	if p.waiting.Len() >= maxWaiting {
		p.mu.Unlock()
		return nil, errFull
	}
	turn := make(chan *slot, 1)
	p.sum(time.Now())
	e := p.waiting.PushBack(turn)
	p.mu.Unlock()
	p.ask()
	over := time.NewTimer(wait)
	defer over.Stop()
	err := error(errSlow)
	select {
	case s := <-turn:
		return s, nil
	case <-over.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case s := <-turn: // it came at the last moment
		p.giveLocked(s)
	default:
		p.sum(time.Now())
		p.waiting.Remove(e)
	}
	return nil, err
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
