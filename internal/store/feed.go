package store

import (
	"sort"
	"sync"
	"sync/atomic"

	"github.com/berthml/berth"
)

// The latest events are kept in memory for watchers: recent of them, less where they are large, at
// times twice as much.
const (
	recent      = 4096
	recentBytes = 4 << 20
)

// A feed holds the latest events for watchers. Watchers hold nothing but a revision and take no
// lock, so their number and their pace cost writers nothing: a commit replaces one pointer, and a
// goroutine of the feed wakes who waits.
type feed struct {
	mu  sync.Mutex // held to replace tip
	tip atomic.Pointer[tip]

	moved  atomic.Pointer[chan struct{}] // closed by the waker when the tip has moved, and at the end
	topics topics
	wake   chan struct{} // tells the waker
	woke   berth.Rev     // how far the waker has told; its own
	quit   chan struct{}
	ended  chan struct{}
}

// A tip is one state of the feed. It does not change.
type tip struct {
	events []berth.Event // every event after since; successors share and extend the array
	since  berth.Rev
	head   berth.Rev
	bytes  int // of events, about
}

// start begins the feed at a revision.
func (f *feed) start(head berth.Rev) {
	f.tip.Store(&tip{since: head, head: head})
	moved := make(chan struct{})
	f.moved.Store(&moved)
	f.woke = head
	f.wake, f.quit, f.ended = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go f.waker()
}

func (f *feed) rev() berth.Rev { return f.tip.Load().head }

// add makes known the events of the revisions after since up to head, and has watchers woken. What
// the feed has already is left out; where something between is missing, the feed starts over and
// watchers read the table.
func (f *feed) add(since, head berth.Rev, events []berth.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.tip.Load()
	if head <= old.head {
		return
	}
	next := &tip{events: old.events, since: old.since, head: head, bytes: old.bytes}
	if since > old.head {
		next.events, next.since, next.bytes = nil, since, 0
	}
	for i := range events {
		if e := &events[i]; e.Rev > old.head {
			next.events = append(next.events, *e)
			next.bytes += size(e)
		}
	}
	if len(next.events) > 2*recent || next.bytes > 2*recentBytes {
		next.trim()
	}
	f.tip.Store(next)
	select {
	case f.wake <- struct{}{}:
	default: // it has yet to look
	}
}

// trim forgets the older half.
func (t *tip) trim() {
	cut := 0
	for ; len(t.events)-cut > recent || cut < len(t.events) && t.bytes > recentBytes; cut++ {
		t.bytes -= size(&t.events[cut])
		t.since = t.events[cut].Rev
	}
	t.events = append([]berth.Event(nil), t.events[cut:]...)
}

// size is about how much memory an event takes.
func size(e *berth.Event) int {
	return 160 + len(e.Workspace) + len(e.Subject) + len(e.Type) + len(e.Reason) + len(e.Data)
}

// after returns the events after a revision. ok is false when the tip does not reach back that far.
func (t *tip) after(rev berth.Rev) (events []berth.Event, ok bool) {
	if rev >= t.head {
		return nil, true
	}
	if rev < t.since {
		return nil, false
	}
	i := sort.Search(len(t.events), func(i int) bool { return t.events[i].Rev > rev })
	return t.events[i:len(t.events):len(t.events)], true
}

// waker wakes watchers, on a goroutine of its own because that takes time for each.
func (f *feed) waker() {
	defer close(f.ended)
	for {
		select {
		case <-f.wake:
		case <-f.quit:
			f.topics.wakeAll()
			close(*f.moved.Load())
			return
		}
		next := make(chan struct{})
		close(*f.moved.Swap(&next))
		t := f.tip.Load()
		if events, ok := t.after(f.woke); ok {
			f.topics.wakeFor(events, f.woke)
		} else {
			f.topics.wakeAll()
		}
		f.woke = t.head
	}
}

// close ends the waker and wakes all.
func (f *feed) close() {
	close(f.quit)
	<-f.ended
}

// topics are the subjects that watchers wait for.
type topics struct {
	mu sync.Mutex
	by map[string]*topic
}

// A topic is a subject with watchers that wait. It is told once and then forgotten.
type topic struct {
	told    chan struct{}
	since   berth.Rev // there was nothing of it before; set when told
	waiting int
}

// join begins to wait for a subject.
func (p *topics) join(subject string) *topic {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.by[subject]
	if t == nil {
		if p.by == nil {
			p.by = make(map[string]*topic)
		}
		t = &topic{told: make(chan struct{})}
		p.by[subject] = t
	}
	t.waiting++
	return t
}

// leave ends the wait.
func (p *topics) leave(subject string, t *topic) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.waiting--; t.waiting == 0 && p.by[subject] == t {
		delete(p.by, subject)
	}
}

// wakeFor wakes the watchers of some events, all those after since.
func (p *topics) wakeFor(events []berth.Event, since berth.Rev) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 0; i < len(events) && len(p.by) > 0; i++ {
		if t := p.by[events[i].Subject]; t != nil {
			delete(p.by, events[i].Subject)
			t.since = since
			close(t.told)
		}
	}
}

func (p *topics) wakeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.by {
		close(t.told)
	}
	clear(p.by)
}
