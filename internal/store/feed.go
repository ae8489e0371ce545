package store

import (
	"context"
	"sort"
	"sync"

	"github.com/berthml/berth"
)

// recent is how many of the latest events are kept in memory for watchers; at times twice as many.
const recent = 4096

// A feed holds the latest events for watchers. Watchers hold nothing but a revision, so their number and their pace
// cost writers nothing: a commit adds to the feed and closes one channel.
type feed struct {
	mu     sync.Mutex
	events []berth.Event // every event after since; the slice only grows, watchers read parts of it without the lock
	since  berth.Rev
	head   berth.Rev
	moved  chan struct{} // closed when head moves, and at the end
	closed bool
}

// reset starts the feed at a revision.
func (f *feed) reset(head berth.Rev) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events, f.since, f.head, f.moved = nil, head, head, make(chan struct{})
}

func (f *feed) rev() berth.Rev {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.head
}

// add makes known the events of the revisions after since up to head, and wakes watchers. What the feed has already
// is left out; where something between is missing, the feed starts over and watchers read the table.
func (f *feed) add(since, head berth.Rev, events []berth.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if head <= f.head {
		return
	}
	if since > f.head {
		f.events, f.since = nil, since
	}
	for _, e := range events {
		if e.Rev > f.head {
			f.events = append(f.events, e)
		}
	}
	f.head = head
	if len(f.events) > 2*recent {
		cut := len(f.events) - recent
		f.since = f.events[cut-1].Rev
		f.events = append(make([]berth.Event, 0, 2*recent+recent/4), f.events[cut:]...)
	}
	if !f.closed {
		close(f.moved)
		f.moved = make(chan struct{})
	}
}

// after returns up to limit events after a revision and the revision they reach to. ok is false when the feed does
// not reach back that far. Where there is nothing new, moved tells when to ask again.
func (f *feed) after(rev berth.Rev, limit int) (events []berth.Event, upTo berth.Rev, moved <-chan struct{}, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if rev >= f.head {
		return nil, rev, f.moved, true
	}
	if rev < f.since {
		return nil, rev, f.moved, false
	}
	i := sort.Search(len(f.events), func(i int) bool { return f.events[i].Rev > rev })
	j := min(len(f.events), i+limit)
	if i == j {
		return nil, f.head, f.moved, true
	}
	return f.events[i:j:j], f.events[j-1].Rev, f.moved, true
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		close(f.moved)
	}
}

// catchUp brings the feed to the head of the database.
func (db *DB) catchUp(ctx context.Context) error {
	since := db.feed.rev()
	var head berth.Rev
	var events []berth.Event
	err := db.View(ctx, func(tx *Tx) error {
		var err error
		if head, err = tx.Rev(); err != nil || head <= since {
			return err
		}
		events, since, err = tx.missed(since, head)
		return err
	})
	if err != nil {
		return err
	}
	db.feed.add(since, head, events)
	return nil
}

// missed reads the events that others committed after a revision, up to head, and says from where on they are
// complete: none from head when they are more than the feed keeps.
func (tx *Tx) missed(since, head berth.Rev) ([]berth.Event, berth.Rev, error) {
	events, err := tx.readEvents(eventColumns+" WHERE rev > ? ORDER BY rev LIMIT ?", int64(since), recent+1)
	if len(events) > recent {
		return nil, head, err
	}
	return events, since, err
}
