package store

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthml/berth"
)

const (
	// joinClass is the class of the advisory lock that servers take to join, one after the other.
	joinClass = 727419
	// joinWait is how long a server waits for those of another home that were killed a moment ago.
	joinWait = 5 * time.Second
	// beatEvery is how often a server says that it lives, and beatTime how long that may take.
	beatEvery = 500 * time.Millisecond
	beatTime  = 2 * time.Second
	// lease is how long a server counts as living after it last said so. A leader that does not is
	// replaced.
	lease = 3 * time.Second
	// databaseTime is the time by the clock of the database, which all servers share.
	databaseTime = "(extract(epoch FROM clock_timestamp()) * 1000000000)::bigint"
	// lockJoin keeps others from joining for the length of a transaction.
	lockJoin = "SELECT pg_advisory_xact_lock($1, hashtext(current_schema()))"
	// selectForeign finds a server that lives and has another home.
	selectForeign = "SELECT who, since FROM servers WHERE home <> $1 AND seen > " + databaseTime + " - $2 ORDER BY since LIMIT 1"
)

// Member identifies a server among those of its database.
type Member struct {
	Who  string // for messages
	Name string // among the servers of its home; a server that is started again has the same
	Home string // what the servers of a database share; those of another home are refused
}

// A member is a server of a PostgreSQL database that others may use too. It says that it lives,
// knows who leads, and becomes the leader when nobody is.
type member struct {
	Member
	db     *DB
	id     string // of this process
	config *pgx.ConnConfig
	conn   *pgx.Conn // of the goroutine that beats; nil when it was lost

	candidate atomic.Bool   // it wants to lead
	stands    chan struct{} // it has just begun to
	standing  atomic.Pointer[standing]
	moved     atomic.Pointer[chan struct{}] // closed when standing has changed hands

	cancel  context.CancelFunc
	ended   chan struct{}
	expel   sync.Once
	expired chan struct{} // closed when the database is not this server's any more
	why     error         // then
}

// A standing is who leads, as a server last heard.
type standing struct {
	leader          leader
	alive           bool
	address, socket string
	began           time.Time // when this server last began to say that it lives, and was heard
}

// join makes this server one of the database's. The tables are there.
func join(ctx context.Context, db *DB, config *pgx.ConnConfig, who Member) (*member, error) {
	m := &member{Member: who, db: db, id: db.server, config: config.Copy(), stands: make(chan struct{}, 1), ended: make(chan struct{}), expired: make(chan struct{})}
	m.config.RuntimeParams["synchronous_commit"] = "off" // what is said twice a second may be lost; campaign sees to itself
	m.config.RuntimeParams["lock_timeout"] = "1500"
	m.standing.Store(&standing{began: time.Now()})
	moved := make(chan struct{})
	m.moved.Store(&moved)
	if err := db.untilFree(ctx, func() (string, error) { return m.enter(ctx) }); err != nil {
		m.hangUp()
		return nil, db.fault(err)
	}
	beats, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go m.run(beats)
	return m, nil
}

// untilFree calls try until it names no server of another home that lives. Those that were killed a
// moment ago seem to live still: it waits so long, and no longer.
func (db *DB) untilFree(ctx context.Context, try func() (other string, err error)) error {
	for deadline := time.Now().Add(joinWait); ; {
		other, err := try()
		switch {
		case err != nil || other == "":
			return err
		case time.Now().After(deadline):
			return berth.Errorf(berth.Conflict, "database %s is used by %s, which has another home: the servers of a database share one; start this one there too, with `berth serve --home DIR --name NAME`, or give it a database of its own", db.where, other)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// enter writes the server down, unless servers of another home live: then it names one.
func (m *member) enter(ctx context.Context) (other string, err error) {
	if err := m.connect(ctx); err != nil {
		return "", err
	}
	err = pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockJoin, joinClass); err != nil {
			return err
		}
		var since int64
		err := tx.QueryRow(ctx, selectForeign, m.Home, int64(lease)).Scan(&other, &since)
		if err == nil {
			other = leader{Who: other, Since: fromNanos(since)}.String()
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if err := m.takeOver(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM meta WHERE key LIKE '"+markPrefix+"%' AND CASE WHEN key LIKE '"+markPrefix+"%' THEN split_part(value, ' ', 2)::bigint < "+databaseTime+" - $1 ELSE false END", markAge); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO servers (name, id, home, who, url, address, socket, since, seen) VALUES ($1, $2, $3, $4, '', '', '', "+databaseTime+", "+databaseTime+")"+
			" ON CONFLICT (name) DO UPDATE SET id = excluded.id, home = excluded.home, who = excluded.who, address = '', socket = '', since = excluded.since, seen = excluded.seen",
			m.Name, m.id, m.Home, m.Who)
		return err
	})
	return other, err
}

// takeOver makes the database this home's, if it is another's or new. From then on servers of the
// other home write nothing: they may only have seemed to be dead.
func (m *member) takeOver(ctx context.Context, tx pgx.Tx) error {
	s, err := readLeader(ctx, tx)
	if err != nil || s.leader.Home == m.Home {
		return err
	}
	_, err = m.writeLeader(ctx, tx, leader{Home: m.Home, Who: m.Who}, func(s standing) bool { return s.leader.Home != m.Home || !s.alive })
	return err
}

// foreign names a server of another home that lives, "" when there is none, and keeps others from
// joining until the transaction of the session ends.
func (db *DB) foreign(ctx context.Context, s *session) (who string, err error) {
	var one int
	if found, err := s.row(ctx, []any{&one}, db.d.hasTable, "servers"); err != nil || !found || db.home == "" {
		return "", err
	}
	if _, err := s.conn.ExecContext(ctx, lockJoin, joinClass); err != nil {
		return "", err
	}
	var since int64
	err = s.conn.QueryRowContext(ctx, selectForeign, db.home, int64(lease)).Scan(&who, &since)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return leader{Who: who, Since: fromNanos(since)}.String(), err
}

// run says that the server lives, and looks who leads, until ctx ends.
func (m *member) run(ctx context.Context) {
	defer close(m.ended)
	heard := true
	for {
		wait := beatEvery
		err := m.beat(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			m.hangUp()
			wait /= 2
		}
		if (err == nil) != heard {
			if heard = err == nil; heard {
				m.db.log.Info("database heartbeat restored")
			} else {
				m.db.log.Warn("database heartbeat failed", "err", err)
			}
		}
		select {
		case <-time.After(wait):
		case <-m.stands:
		case <-ctx.Done():
			return
		case <-m.expired:
			return
		}
	}
}

// beat says once that the server lives, and looks who leads. Where nobody does it becomes the
// leader, if it wants to. A leader that does not want to any more resigns.
func (m *member) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatTime)
	defer cancel()
	if err := m.connect(ctx); err != nil {
		return err
	}
	began := time.Now()
	var s standing
	err := pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "UPDATE servers SET seen = "+databaseTime+" WHERE id = $1", m.id)
		if err != nil {
			return err
		}
		if s, err = readLeader(ctx, tx); err != nil {
			return err
		}
		switch {
		case s.leader.Home != m.Home:
			m.lose(m.db.replaced(s.leader.String()))
			return m.why
		case tag.RowsAffected() == 0:
			m.lose(m.db.replaced("another server of its name"))
			return m.why
		}
		return nil
	})
	if err != nil {
		return err
	}
	switch candidate := m.candidate.Load(); {
	case candidate && !s.alive:
		s, err = m.campaign(ctx)
	case !candidate && m.leads(&s): // it has no loops, and seems to lead because it lives
		s, err = m.resign(ctx)
	}
	if err != nil {
		return err
	}
	s.began = began
	m.note(s)
	return nil
}

// note keeps who leads, and tells those who wait for another, or for a word of the database.
func (m *member) note(s standing) {
	old := m.standing.Swap(&s)
	if old.left() <= 0 || old.leader.Term != s.leader.Term || old.leader.ID != s.leader.ID || old.address != s.address || old.alive != s.alive {
		next := make(chan struct{})
		close(*m.moved.Swap(&next))
	}
}

// lose ends the server's part in the database.
func (m *member) lose(why error) {
	m.expel.Do(func() {
		m.why = why
		close(m.expired)
	})
}

// guard waits until the database is not this server's any more.
func (m *member) guard(ctx context.Context) error {
	select {
	case <-m.expired:
		return m.why
	case <-ctx.Done():
		return nil
	}
}

func (m *member) connect(ctx context.Context) (err error) {
	if m.conn == nil {
		m.conn, err = pgx.ConnectConfig(ctx, m.config)
	}
	return err
}

// hangUp ends a connection that may be dead.
func (m *member) hangUp() {
	if m.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	m.conn.Close(ctx)
	m.conn = nil
}

// close says that the server has ended, so that the next one can lead at once.
func (m *member) close() {
	m.cancel()
	<-m.ended
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if m.connect(ctx) == nil {
		_, _ = m.conn.Exec(ctx, "UPDATE servers SET seen = 0 WHERE id = $1", m.id) // else it is noticed a little later
	}
	m.hangUp()
}
