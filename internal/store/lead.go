package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthml/berth"
)

const (
	// leadClass is the class of the advisory lock that the server of a database holds; within it there is one for each schema.
	leadClass = 727418
	// leadWait is how long to wait for a server that was killed a moment ago: the database may not have noticed yet.
	leadWait = 5 * time.Second
	// leadPing is how often the connection that holds the lock is tried.
	leadPing = 5 * time.Second
	// leadKey is the key of the server's name in the table meta.
	leadKey = "server"
)

// A lead is a server's right to act on a PostgreSQL database that others may reach too. A lock that lives as long as a connection says
// who may become the server, and goes when that server dies. A row says who is, and every update looks at it: one who has lost the
// connection, and was replaced meanwhile, writes nothing any more.
type lead struct {
	db     *DB
	config *pgx.ConnConfig
	name   leader
	text   string    // name as it is stored
	conn   *pgx.Conn // holds the lock
}

// A leader is what is stored of a server.
type leader struct {
	ID    string    `json:"id"`
	Who   string    `json:"who"`
	Since time.Time `json:"since"`
}

func (l leader) String() string {
	if l.Who == "" {
		return "another server"
	}
	return fmt.Sprintf("%s, since %s", l.Who, l.Since.UTC().Format(time.RFC3339))
}

// takeLead waits a little for the lock, and refuses when another server has it.
func takeLead(ctx context.Context, db *DB, config *pgx.ConnConfig, who string) (*lead, error) {
	l := &lead{db: db, config: config.Copy(), name: leader{ID: db.server, Who: who, Since: time.Now().UTC()}}
	// A server whose machine is gone is to be noticed soon.
	for k, v := range map[string]string{"tcp_keepalives_idle": "5", "tcp_keepalives_interval": "2", "tcp_keepalives_count": "3"} {
		l.config.RuntimeParams[k] = v
	}
	b, err := json.Marshal(l.name)
	if err != nil {
		return nil, err
	}
	l.text = string(b)
	for deadline := time.Now().Add(leadWait); ; {
		locked, _, err := l.try(ctx)
		switch {
		case err != nil:
			return nil, db.fault(err)
		case locked:
			return l, nil
		case time.Now().After(deadline):
			return nil, l.refused(ctx)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// try connects and asks for the lock; it also says who the server is, as far as that was written.
func (l *lead) try(ctx context.Context) (locked bool, now leader, err error) {
	c, err := pgx.ConnectConfig(ctx, l.config)
	if err != nil {
		return false, now, err
	}
	defer func() {
		if !locked || err != nil {
			locked = false
			hangUp(c)
		}
	}()
	if err := c.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, hashtext(current_schema()))", leadClass).Scan(&locked); err != nil {
		return false, now, err
	}
	if now, err = readLeader(ctx, c); err == nil && locked {
		l.conn = c
	}
	return locked, now, err
}

// readLeader is who the server of a database is; nobody in one that is new.
func readLeader(ctx context.Context, c *pgx.Conn) (now leader, err error) {
	var there bool
	if err := c.QueryRow(ctx, "SELECT to_regclass('meta') IS NOT NULL").Scan(&there); err != nil || !there {
		return now, err
	}
	var text string
	err = c.QueryRow(ctx, "SELECT value FROM meta WHERE key = $1", leadKey).Scan(&text)
	if errors.Is(err, pgx.ErrNoRows) {
		return now, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &now)
	}
	return now, err
}

// refused is the error of a server that came second.
func (l *lead) refused(ctx context.Context) error {
	_, now, err := l.try(ctx)
	l.close() // too late: whoever waited long enough is told
	if err != nil {
		return l.db.fault(err)
	}
	return berth.Errorf(berth.Conflict, "database %s is used by %s: two servers would run every job twice; stop that one first, or give this one a database of its own", l.db.where, now)
}

// declare writes that this server is the one. Updates of another that are under way end before, and none comes after.
func (l *lead) declare(ctx context.Context) error {
	return pgx.BeginFunc(ctx, l.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT rev FROM head WHERE one = 1 FOR UPDATE"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value", leadKey, l.text)
		return err
	})
}

// guard keeps the lock until ctx ends, and takes it again when its connection was lost. The error says who has it instead.
func (l *lead) guard(ctx context.Context) error {
	for {
		err := l.hold(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was asked to end
		}
		l.db.log.Warn("connection that holds the database for this server lost, connecting again", "err", err)
		hangUp(l.conn)
		for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
			locked, now, err := l.try(ctx)
			if ctx.Err() != nil {
				return nil //nolint:nilerr // it was asked to end
			}
			if err == nil && now.ID != l.name.ID {
				return l.db.replaced(now)
			}
			if locked {
				break
			}
			l.db.log.Warn("database not held again yet", "err", err, "wait", wait)
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// replaced is the error of a server that is not the one of its database any more.
func (db *DB) replaced(by leader) error {
	return berth.Errorf(berth.Unavailable, "database %s was taken over by %s; this server must not act on it any more and stops", db.where, by)
}

// hold returns when the connection is lost, or ctx ends.
func (l *lead) hold(ctx context.Context) error {
	for {
		wait, cancel := context.WithTimeout(ctx, leadPing)
		_, err := l.conn.WaitForNotification(wait) // there are none: it returns when the connection ends
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if l.conn.IsClosed() {
			return err
		}
		ping, cancel := context.WithTimeout(ctx, leadPing)
		err = l.conn.Ping(ping)
		cancel()
		if err != nil {
			return err
		}
	}
}

// close gives the lock back.
func (l *lead) close() {
	if l == nil || l.conn == nil {
		return
	}
	hangUp(l.conn)
	l.conn = nil
}

// hangUp ends a connection that may be dead.
func hangUp(c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c.Close(ctx)
}

// Guard returns nil when ctx ends, and an error as soon as the database is not this server's any more. The server must act on nothing
// after that.
func (db *DB) Guard(ctx context.Context) error {
	switch {
	case db.lead != nil:
		return db.lead.guard(ctx)
	case db.file == nil:
		<-ctx.Done()
		return nil
	}
	return db.guardFile(ctx)
}
