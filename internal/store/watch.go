package store

import (
	"context"

	"github.com/berthml/berth"
)

// watchBatch is the most events Next returns at once.
const watchBatch = 512

// Watch is a stream of events. It holds a position and nothing else: there is nothing to close, and
// a Watch that is not read costs nothing. One goroutine uses it at a time.
type Watch struct {
	db                 *DB
	ctx                context.Context // of the stream, which is the life of the Watch
	from               berth.Rev
	workspace, subject string // of a watch of one subject
}

// Watch streams the events with revisions greater than from: all of them, each once, in order.
func (db *DB) Watch(ctx context.Context, from berth.Rev) *Watch {
	return &Watch{db: db, ctx: ctx, from: from}
}

// WatchSubject is Watch for the events of one subject only. Other events do not wake it: with
// thousands of clients that each follow a job, this is the one to use. An empty workspace is any.
func (db *DB) WatchSubject(ctx context.Context, from berth.Rev, workspace, subject string) *Watch {
	return &Watch{db: db, ctx: ctx, from: from, workspace: workspace, subject: subject}
}

// Next waits for events and returns at least one. The slice and what is in it are shared: do not
// change them. The error is that of the context when it ends, ErrClosed when the store closes, and
// berth.Gone when events after from have been pruned: read the state afresh, then watch from its
// revision.
func (w *Watch) Next() ([]berth.Event, error) {
	for {
		if err := w.ctx.Err(); err != nil {
			return nil, err
		}
		events, err := w.poll()
		if err != nil || len(events) > 0 {
			return events, err
		}
		if err := w.wait(); err != nil {
			return nil, err
		}
	}
}

// wait waits until there may be something new.
func (w *Watch) wait() error {
	f := &w.db.feed
	if w.subject == "" {
		return w.waitFor(*f.moved.Load())
	}
	t := f.topics.join(w.subject)
	defer f.topics.leave(w.subject, t)
	if err := w.waitFor(t.told); err != nil {
		return err
	}
	select {
	case <-t.told:
		// Events of others may have been pruned during a long wait: they are not missed.
		w.from = max(w.from, t.since)
	default:
	}
	return nil
}

// waitFor waits for told to be closed, unless there is something new already: whoever waits looks
// once more after taking the channel, so that no word is lost.
func (w *Watch) waitFor(told <-chan struct{}) error {
	if w.from < w.db.feed.rev() {
		return nil
	}
	if w.db.closed.Load() {
		return ErrClosed
	}
	select {
	case <-told:
	case <-w.ctx.Done():
	}
	return nil
}

// poll reads what there is and moves on behind it.
func (w *Watch) poll() ([]berth.Event, error) {
	tip := w.db.feed.tip.Load()
	events, ok := tip.after(w.from)
	if !ok {
		return w.read()
	}
	if w.subject != "" {
		var mine []berth.Event
		for i := range events {
			if e := &events[i]; e.Subject == w.subject && (w.workspace == "" || e.Workspace == w.workspace) {
				mine = append(mine, *e)
			}
		}
		w.from = max(w.from, tip.head)
		return mine, nil
	}
	if len(events) > watchBatch {
		events = events[:watchBatch:watchBatch]
		w.from = events[watchBatch-1].Rev
		return events, nil
	}
	w.from = max(w.from, tip.head)
	return events, nil
}

// read reads from the table what the feed has no more.
func (w *Watch) read() (events []berth.Event, err error) {
	err = w.db.View(w.ctx, func(tx *Tx) error {
		var rev, pruned int64
		if _, err := tx.row([]any{&rev, &pruned}, selectHead); err != nil {
			return err
		}
		if w.from < berth.Rev(pruned) {
			return berth.Errorf(berth.Gone, "events up to revision %d are no longer kept; those after %d were requested: "+
				"read the current state and watch from there", pruned, w.from)
		}
		var err error
		events, err = tx.Events(EventQuery{Workspace: w.workspace, Subject: w.subject, From: w.from, Limit: watchBatch})
		if err != nil {
			return err
		}
		if len(events) == watchBatch {
			w.from = events[watchBatch-1].Rev
		} else {
			w.from = berth.Rev(rev)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return events, nil
}
