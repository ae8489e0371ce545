package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/berthml/berth"
)

// A listener hears of the commits of other servers on a connection of its own, and brings them to
// this one's watchers.
type listener struct {
	db     *DB
	config *pgx.ConnConfig
	cancel context.CancelFunc
	ended  chan struct{}
}

func (l *listener) start() {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel, l.ended = cancel, make(chan struct{})
	go func() {
		defer close(l.ended)
		l.loop(ctx)
	}()
}

func (l *listener) stop() {
	l.cancel()
	<-l.ended
}

// loop listens until ctx ends, and connects again when the connection is lost.
func (l *listener) loop(ctx context.Context) {
	const first, most = 50 * time.Millisecond, 5 * time.Second
	wait := first
	for ctx.Err() == nil {
		heard, err := l.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if heard {
			wait = first
		}
		l.db.log.Warn("no notifications from other servers; reconnecting", "err", err, "wait", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		wait = min(2*wait, most)
	}
}

// listen serves one connection; heard says that it worked for a while.
func (l *listener) listen(ctx context.Context) (heard bool, err error) {
	c, err := pgx.ConnectConfig(ctx, l.config)
	if err != nil {
		return false, err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Close(end)
	}()
	if _, err := c.Exec(ctx, "LISTEN "+channel); err != nil {
		return false, err
	}
	for {
		// Also right after the LISTEN: for what was committed while nobody listened.
		if err := l.db.catchUp(ctx); err != nil {
			return heard, err
		}
		for {
			n, err := await(ctx, c)
			if err != nil {
				return heard, err
			}
			heard = true
			if n != nil && n.Payload != l.db.server { // our own commits are known
				break
			}
		}
	}
}

// silent is how long a connection may bring no word before it is tried.
const silent = 3 * time.Second

// await waits for a word, nil when there was none for a while and the connection is good still.
func await(ctx context.Context, c *pgx.Conn) (*pgconn.Notification, error) {
	wait, cancel := context.WithTimeout(ctx, silent)
	n, err := c.WaitForNotification(wait)
	cancel()
	if err == nil || ctx.Err() != nil || c.IsClosed() {
		return n, err
	}
	ping, cancel := context.WithTimeout(ctx, silent)
	defer cancel()
	return nil, c.Ping(ping)
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

// missed reads the events that others committed after a revision, up to head, and says from where
// on they are complete: none from head when they are more than the feed keeps.
func (tx *Tx) missed(since, head berth.Rev) ([]berth.Event, berth.Rev, error) {
	events, err := tx.readEvents(eventColumns+" WHERE rev > ? ORDER BY rev LIMIT ?", int64(since), recent+1)
	if len(events) > recent {
		return nil, head, err
	}
	return events, since, err
}
