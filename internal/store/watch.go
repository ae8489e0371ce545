package store

import (
	"context"

	"github.com/berthml/berth"
)

// watchBatch is the most events Next returns at once.
const watchBatch = 512

// Watch is a stream of events. It holds a position and nothing else: there is nothing to close, and a Watch that is
// not read costs nothing. One goroutine uses it at a time.
type Watch struct {
	db   *DB
	ctx  context.Context // of the stream, which is the life of the Watch
	from berth.Rev
}

// Watch streams the events with revisions greater than from: all of them, each once, in order.
func (db *DB) Watch(ctx context.Context, from berth.Rev) *Watch {
	return &Watch{db: db, ctx: ctx, from: from}
}

// Next waits for events and returns at least one. The slice and what is in it are shared: do not change them. The
// error is that of the context when it ends, ErrClosed when the store closes, and berth.Gone when events after from
// have been pruned: read the state afresh, then watch from its revision.
func (w *Watch) Next() ([]berth.Event, error) {
	for {
		if err := w.ctx.Err(); err != nil {
			return nil, err
		}
		events, upTo, moved, ok := w.db.feed.after(w.from, watchBatch)
		if !ok {
			var err error
			if events, upTo, err = w.db.eventsAfter(w.ctx, w.from); err != nil {
				return nil, err
			}
		}
		behind := upTo > w.from
		w.from = upTo
		if len(events) > 0 {
			return events, nil
		}
		if behind {
			continue
		}
		if w.db.closed.Load() {
			return nil, ErrClosed
		}
		select {
		case <-moved:
		case <-w.ctx.Done():
		}
	}
}

// eventsAfter reads a batch of events from the table, and the revision it reaches to.
func (db *DB) eventsAfter(ctx context.Context, from berth.Rev) (events []berth.Event, upTo berth.Rev, err error) {
	err = db.View(ctx, func(tx *Tx) error {
		var rev, pruned int64
		if _, err := tx.row([]any{&rev, &pruned}, selectHead); err != nil {
			return err
		}
		if from < berth.Rev(pruned) {
			return berth.Errorf(berth.Gone, "events up to revision %d are no longer kept, asked for those after %d: "+
				"read the present state and follow from there", pruned, from)
		}
		upTo = berth.Rev(rev)
		var err error
		if events, err = tx.readEvents(eventColumns+" WHERE rev > ? ORDER BY rev LIMIT ?", int64(from), watchBatch); err != nil {
			return err
		}
		if len(events) == watchBatch {
			upTo = events[len(events)-1].Rev
		}
		return nil
	})
	return events, upTo, err
}
