package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/berthml/berth"
)

var postgresDialect = &dialect{
	dollar:     true,
	schema:     []string{"INTEGER", "BIGINT", "BLOB", "BYTEA", "TEXT", `TEXT COLLATE "C"`, " WITHOUT ROWID", ""},
	remote:     true,
	limitArms:  true,
	beginRead:  "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
	beginWrite: "BEGIN ISOLATION LEVEL READ COMMITTED",
	hasTable:   "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = current_schema() AND tablename = ?",
	anyTable:   "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = current_schema() LIMIT 1",
	lockSchema: "SELECT pg_advisory_xact_lock(727417)",
	begin:      postgresBegin,
	commit:     postgresCommit,
	fault:      postgresFault,
}

// channel is where servers tell each other of commits.
const channel = "berth"

// stall is for how many milliseconds a server that has the lock on the head row may be silent. Then
// the database ends its transaction: one that was stopped, or cut off, must not hold up the others.
const stall = "3000"

// postgresReaders is how many connections views share; each is a process of the server.
const postgresReaders = 8

func openPostgres(ctx context.Context, url string, o Options) (*DB, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "database URL: %w", err)
	}
	config.RuntimeParams["application_name"] = "berth"
	where := fmt.Sprintf("postgres://%s:%d/%s", config.Host, config.Port, config.Database)
	db := &DB{d: postgresDialect, where: where, log: o.Log, rehearse: o.Rehearse, server: berth.NewGUID(), home: o.Server.Home}
	db.clock.start(o.Wall)
	pool := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(durable(o.NoSync)))
	if err := db.start(ctx, pool, pool, postgresReaders); err != nil {
		pool.Close()
		return nil, err
	}
	if o.Server.Who != "" {
		if db.member, err = join(ctx, db, config, o.Server); err != nil {
			db.Close()
			return nil, err
		}
		db.stops = append(db.stops, db.member.close)
	}
	l := &listener{db: db, config: config}
	l.start()
	db.stops = append(db.stops, l.stop)
	return db, nil
}

// durable makes commits of a connection wait for the disk where the server's default is not to, or
// the other way round.
func durable(noSync bool) func(context.Context, *pgx.Conn) error {
	q := "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
	if noSync {
		q = "SET synchronous_commit = off"
	}
	return func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, q, pgx.QueryExecModeSimpleProtocol)
		return err
	}
}

// postgresBegin takes the lock on the head row, which the transaction holds to its end: so writers
// of several servers take turns, and revisions are given out in commit order.
func postgresBegin(ctx context.Context, s *session) (head, error) {
	results, err := journey(ctx, s, "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = "+stall+
		"; SELECT rev, pruned FROM head WHERE one = 1 FOR UPDATE;"+
		" SELECT value FROM meta WHERE key = '"+leadKey+"'") // read after the lock is held
	if err != nil {
		return head{}, err
	}
	row := results[2].Rows[0]
	rev, err1 := strconv.ParseInt(string(row[0]), 10, 64)
	pruned, err2 := strconv.ParseInt(string(row[1]), 10, 64)
	h := head{rev: berth.Rev(rev), pruned: berth.Rev(pruned)}
	if leader := results[3].Rows; len(leader) > 0 {
		h.leader = string(leader[0][0])
	}
	return h, errors.Join(err1, err2)
}

// markPrefix begins the keys in the table meta under which each server says what it committed last:
// the number of the commit and when it was, by the clock of the database. That alone tells what
// became of a commit that was not answered: the database gives the name of a transaction that was
// lost with it to another.
const markPrefix = "commit/"

// markAge is after how long the mark of a server is forgotten, in nanoseconds. Nobody asks for it
// after more than inquiry.
const markAge = int64(24 * time.Hour)

func postgresCommit(ctx context.Context, s *session, h *head) error {
	text := "COMMIT"
	if h != nil {
		text = fmt.Sprintf("UPDATE head SET rev = %d, pruned = %d WHERE one = 1;"+
			" INSERT INTO meta (key, value) VALUES ('%s%s', '%d ' || %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value;"+
			" SELECT pg_notify('%s', '%s'); COMMIT",
			h.rev, h.pruned, markPrefix, h.server, h.number, databaseTime, channel, h.server)
	}
	_, err := journey(ctx, s, text)
	return err
}

// journey sends several statements at once.
func journey(ctx context.Context, s *session, text string) (results []*pgconn.Result, err error) {
	err = s.conn.Raw(func(c any) error {
		var err error
		results, err = c.(*stdlib.Conn).Conn().PgConn().Exec(ctx, text).ReadAll()
		return err
	})
	return results, err
}

// committed asks what became of a commit that was not answered, until ctx ends. Whoever has the
// lock on the head row knows that no earlier commit is under way.
func committed(ctx context.Context, pool *sql.DB, h *head) (bool, error) {
	for {
		done, err := readMark(ctx, pool, h)
		if err == nil {
			return done, nil
		}
		select { // the server is away still
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return false, errors.Join(ctx.Err(), err)
		}
	}
}

func readMark(ctx context.Context, pool *sql.DB, h *head) (done bool, err error) {
	s, err := newSession(ctx, pool, postgresDialect)
	if err != nil {
		return false, err
	}
	defer s.close()
	results, err := journey(ctx, s, "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT rev FROM head WHERE one = 1 FOR UPDATE;"+
		" SELECT value FROM meta WHERE key = '"+markPrefix+h.server+"'; COMMIT")
	if err != nil || len(results[2].Rows) == 0 {
		return false, err
	}
	number, _, _ := strings.Cut(string(results[2].Rows[0][0]), " ")
	return number == strconv.FormatInt(h.number, 10), nil
}

// postgresFault gives an error of PostgreSQL its words.
func postgresFault(where string, err error) error {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return berth.Errorf(berth.Unavailable, "database %s cannot be reached: %w", where, err)
	}
	switch {
	case e.Code == "53100":
		return berth.Errorf(berth.Unavailable, "the disk of database %s is full; free some space, nothing was lost: %w", where, err)
	case strings.HasPrefix(e.Code, "53"), strings.HasPrefix(e.Code, "57P"), strings.HasPrefix(e.Code, "08"),
		strings.HasPrefix(e.Code, "40"), strings.HasPrefix(e.Code, "55"):
		return berth.Errorf(berth.Unavailable, "database %s accepts no more connections at the moment: %w", where, err)
	case e.Code == "25P03":
		return berth.Errorf(berth.Unavailable, "database %s timed out waiting for this server: %w", where, err)
	case e.Code == "25006":
		return berth.Errorf(berth.Unavailable, "database %s is read-only, perhaps a standby: %w", where, err)
	case strings.HasPrefix(e.Code, "28"), strings.HasPrefix(e.Code, "3D"), e.Code == "42501":
		return berth.Errorf(berth.Invalid, "database %s rejected the login: %w", where, err)
	case strings.HasPrefix(e.Code, "22"):
		return berth.Errorf(berth.Invalid, "text that database %s cannot store: %w", where, err)
	case strings.HasPrefix(e.Code, "XX"):
		return berth.Errorf(berth.Internal, "database %s is damaged; restore it from a backup: %w", where, err)
	}
	return berth.Errorf(berth.Internal, "database %s: %w", where, err)
}
