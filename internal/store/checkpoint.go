package store

import (
	"context"
	"database/sql"
)

// checkpointCommits is after how many commits the log is moved into the database.
const checkpointCommits = 64

// A checkpointer moves SQLite's log into the database beside the writer, which would otherwise
// stand still for it. A writer that never pauses leaves it behind; then the log reaches
// checkpointPages, and the writer does the rest itself.
type checkpointer struct {
	s       *session
	commits int // since the last one; the writer's own
	wake    chan struct{}
	quit    chan struct{}
	ended   chan struct{}
}

func startCheckpointer(ctx context.Context, pool *sql.DB, d *dialect) (*checkpointer, error) {
	s, err := newSession(ctx, pool, d)
	if err != nil {
		return nil, err
	}
	c := &checkpointer{s: s, wake: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{})}
	go c.loop()
	return c, nil
}

// count notes a commit.
func (c *checkpointer) count() {
	if c.commits++; c.commits < checkpointCommits {
		return
	}
	c.commits = 0
	select {
	case c.wake <- struct{}{}:
	default: // it is at it
	}
}

func (c *checkpointer) loop() {
	defer close(c.ended)
	for {
		select {
		case <-c.wake:
			// What fails here is left to the writer, which meets the same cause and reports it.
			c.s.exec(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)") //nolint:errcheck // see above
		case <-c.quit:
			c.s.close()
			return
		}
	}
}

func (c *checkpointer) stop() {
	close(c.quit)
	<-c.ended
}
