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

// Writers of several servers take turns by the lock on the head row, which is held until the commit: so revisions are
// given out in commit order.
var postgresDialect = &dialect{
	name:      "postgres",
	dollar:    true,
	schema:    []string{"INTEGER", "BIGINT", "BLOB", "BYTEA", "TEXT", `TEXT COLLATE "C"`, " WITHOUT ROWID", ""},
	beginRead: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
	beginMove: "BEGIN ISOLATION LEVEL READ COMMITTED",
	lockHead: "SELECT rev, pruned, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000" +
		" FROM head WHERE one = 1 FOR UPDATE",
	saveHead: "WITH h AS (UPDATE head SET rev = ?, pruned = ? WHERE one = 1)" +
		" SELECT pg_current_xact_id()::text, pg_notify('" + channel + "', ?)::text",
	hasTable:   "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = current_schema() AND tablename = ?",
	anyTable:   "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = current_schema() LIMIT 1",
	lockSchema: "SELECT pg_advisory_xact_lock(727417)",
	fault:      postgresFault,
}

// channel is where servers tell each other of commits.
const channel = "berth"

// postgresReaders is how many connections views share; each is a process of the server.
const postgresReaders = 8

func openPostgres(ctx context.Context, url string, o Options) (*DB, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "database URL: %w", err)
	}
	config.RuntimeParams["application_name"] = "berth"
	where := fmt.Sprintf("postgres://%s:%d/%s", config.Host, config.Port, config.Database)
	db := &DB{d: postgresDialect, where: where, log: o.Log}
	pool := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(durable(o.NoSync)))
	server := berth.NewGUID()
	db.note = func(rev berth.Rev) string { return server + " " + strconv.FormatInt(int64(rev), 10) }
	if err := db.start(ctx, pool, pool, postgresReaders); err != nil {
		pool.Close()
		return nil, err
	}
	l := &listener{db: db, config: config, server: server}
	l.start()
	db.stops = append(db.stops, l.stop)
	return db, nil
}

// durable makes commits of a connection wait for the disk where the server's default is not to, or the other way round.
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

// committed asks what became of a transaction whose commit was not answered, until ctx ends.
func committed(ctx context.Context, pool *sql.DB, xid string) (bool, error) {
	for {
		var status sql.NullString
		err := pool.QueryRowContext(ctx, "SELECT pg_xact_status($1::text::xid8)", xid).Scan(&status)
		switch {
		case status.String == "committed":
			return true, nil
		case status.String == "aborted":
			return false, nil
		case err == nil && status.String != "in progress":
			return false, fmt.Errorf("transaction %s is not known any more", xid)
		}
		// The server is away still, or has not noticed that we were.
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return false, errors.Join(ctx.Err(), err)
		}
	}
}

// postgresFault gives an error of PostgreSQL its words.
func postgresFault(where string, err error) error {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return berth.Errorf(berth.Unavailable, "database %s cannot be reached: %w", where, err)
	}
	switch {
	case e.Code == "53100":
		return berth.Errorf(berth.Unavailable, "the disk of database %s is full: free some space, nothing was lost: %w", where, err)
	case strings.HasPrefix(e.Code, "53"), strings.HasPrefix(e.Code, "57P"), strings.HasPrefix(e.Code, "08"),
		strings.HasPrefix(e.Code, "40"), strings.HasPrefix(e.Code, "55"):
		return berth.Errorf(berth.Unavailable, "database %s has no room for us now: %w", where, err)
	case e.Code == "25006":
		return berth.Errorf(berth.Unavailable, "database %s is read-only, a standby perhaps: %w", where, err)
	case strings.HasPrefix(e.Code, "28"), strings.HasPrefix(e.Code, "3D"), e.Code == "42501":
		return berth.Errorf(berth.Invalid, "database %s does not let us in: %w", where, err)
	case strings.HasPrefix(e.Code, "22"):
		return berth.Errorf(berth.Invalid, "text that database %s cannot hold: %w", where, err)
	case strings.HasPrefix(e.Code, "XX"):
		return berth.Errorf(berth.Internal, "database %s is damaged: restore it from a backup: %w", where, err)
	}
	return berth.Errorf(berth.Internal, "database %s: %w", where, err)
}
