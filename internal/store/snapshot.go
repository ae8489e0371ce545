package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/berthml/berth"
)

// A snapshot is the database at one moment, as a file of SQLite with the same tables, whichever
// engine it was taken from: it can be restored into either.

// passing are the tables that say something about running servers only.
var passing = []string{"leases", "servers"}

// restoreKey is the key in the table meta of the snapshot that a PostgreSQL database was restored
// from.
const restoreKey = "restored"

// termLeap is added to the term of a restored database: servers may have had later terms since the
// snapshot was taken, and who knows those refuses an earlier one.
const termLeap = 1 << 20

// Snapshot writes the database that url names to a new file at path, while servers use it, and
// returns its schema version. It changes nothing: a schema that is not this build's is refused.
func Snapshot(ctx context.Context, url, path string) (schema int, err error) {
	scheme, rest, _ := strings.Cut(url, ":")
	switch scheme {
	case "sqlite":
		err = snapshotFile(ctx, rest, path)
	case "postgres", "postgresql":
		err = snapshotPostgres(ctx, url, path)
	default:
		err = berth.Errorf(berth.Invalid, "%q is not a supported database; use sqlite:PATH or postgres://…", url)
	}
	if err != nil {
		return 0, err
	}
	schema, err = SnapshotSchema(ctx, path)
	if err != nil {
		return 0, err
	}
	steps, err := migrations()
	if err == nil && schema != len(steps) {
		err = berth.Errorf(berth.Unsupported, "the database has schema %d, and this Berth has %d: back it up with the program that its server runs, or start the server with this one first", schema, len(steps))
	}
	return schema, err
}

// SnapshotSchema checks a snapshot and returns its schema version. One of a newer Berth is refused.
func SnapshotSchema(ctx context.Context, path string) (schema int, err error) {
	pool, err := existing(path, "query_only(1)")
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	var sound string
	if err = pool.QueryRowContext(ctx, "PRAGMA quick_check").Scan(&sound); err == nil && sound != "ok" {
		err = errors.New(sound)
	}
	if err == nil {
		err = pool.QueryRowContext(ctx, "SELECT version FROM schema_version").Scan(&schema)
	}
	if err != nil {
		return 0, berth.Errorf(berth.Invalid, "%s is not a whole snapshot of a database: %w", path, err)
	}
	steps, err := migrations()
	if err == nil && schema > len(steps) {
		err = berth.Errorf(berth.Unsupported, "the database was created by a newer Berth (schema %d, this one knows %d): run that version or a later one", schema, len(steps))
	}
	return schema, err
}

// existing opens a file of SQLite that is there.
func existing(path string, pragmas ...string) (*sql.DB, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, berth.Errorf(berth.NotFound, "there is no database: %w", err)
	}
	return sqlitePool(path, append(pragmas, "busy_timeout(10000)")...)
}

func snapshotFile(ctx context.Context, from, to string) error {
	pool, err := existing(from)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.ExecContext(ctx, "VACUUM INTO ?", to); err != nil {
		return sqliteFault(from, err)
	}
	return nil
}

func snapshotPostgres(ctx context.Context, url, path string) error {
	pool, where, err := postgresPool(url)
	if err != nil {
		return err
	}
	defer pool.Close()
	fault := func(err error) error { return (&DB{d: postgresDialect, where: where}).fault(err) }
	from, err := pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return fault(err)
	}
	defer from.Rollback() //nolint:errcheck // it has read only
	var schema int
	if err := from.QueryRowContext(ctx, "SELECT version FROM schema_version").Scan(&schema); err != nil {
		return fault(err)
	}
	out, err := sqlitePool(path, "journal_mode(OFF)", "synchronous(OFF)")
	if err != nil {
		return err
	}
	defer out.Close()
	to, err := out.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer to.Rollback() //nolint:errcheck // the file is thrown away
	if err := createSchema(ctx, to, sqliteDialect, schema); err != nil {
		return err
	}
	tables, err := tablesOf(ctx, to)
	for _, t := range tables {
		if err = copyTable(ctx, from, to, sqliteDialect, t); err != nil {
			return fault(err)
		}
	}
	return errors.Join(err, to.Commit())
}

func postgresPool(url string) (pool *sql.DB, where string, err error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, "", berth.Errorf(berth.Invalid, "database URL: %w", err)
	}
	config.RuntimeParams["application_name"] = "berth backup"
	return stdlib.OpenDB(*config), fmt.Sprintf("postgres://%s:%d/%s", config.Host, config.Port, config.Database), nil
}

// createSchema makes the tables of a schema version in an empty database.
func createSchema(ctx context.Context, tx *sql.Tx, d *dialect, schema int) error {
	steps, err := migrations()
	if err != nil {
		return err
	}
	if schema > len(steps) {
		return berth.Errorf(berth.Unsupported, "the database was created by a newer Berth (schema %d, this one knows %d): run that version or a later one", schema, len(steps))
	}
	words := strings.NewReplacer(d.schema...)
	first := []string{"CREATE TABLE schema_version (version INTEGER NOT NULL);\nINSERT INTO schema_version VALUES (" + strconv.Itoa(schema) + ")"}
	for _, step := range append(first, steps[:schema]...) {
		for stmt := range strings.SplitSeq(step, ";\n") {
			if blank(stmt) {
				continue
			}
			if _, err := tx.ExecContext(ctx, words.Replace(stmt)); err != nil {
				return err
			}
		}
	}
	return nil
}

// tableColumns are the columns that a snapshot has of a table.
type tableColumns struct {
	name    string
	columns []string
}

// tablesOf are the tables of a snapshot that are kept.
func tablesOf(ctx context.Context, tx *sql.Tx) (tables []tableColumns, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND t.name <> 'schema_version' ORDER BY t.name, c.cid")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			return nil, err
		}
		if slices.Contains(passing, table) {
			continue
		}
		if n := len(tables); n == 0 || tables[n-1].name != table {
			tables = append(tables, tableColumns{name: table})
		}
		last := &tables[len(tables)-1]
		last.columns = append(last.columns, column)
	}
	return tables, rows.Err()
}

// copyTable replaces the rows of a table with those of another database; d is the dialect of to.
func copyTable(ctx context.Context, from, to *sql.Tx, d *dialect, t tableColumns) error {
	if _, err := to.ExecContext(ctx, "DELETE FROM "+t.name); err != nil { // head has a row from the beginning
		return err
	}
	columns := strings.Join(t.columns, ", ")
	rows, err := from.QueryContext(ctx, "SELECT "+columns+" FROM "+t.name)
	if err != nil {
		return err
	}
	defer rows.Close()
	marks := strings.TrimSuffix(strings.Repeat("?, ", len(t.columns)), ", ")
	insert, err := to.PrepareContext(ctx, d.text("INSERT INTO "+t.name+" ("+columns+") VALUES ("+marks+")"))
	if err != nil {
		return err
	}
	defer insert.Close()
	values := make([]any, len(t.columns))
	into := make([]any, len(values))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if _, err := insert.ExecContext(ctx, values...); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Restore makes a snapshot the contents of the database that url names, which must not exist, or be
// empty. In PostgreSQL it is one transaction: id names it, so that a restore that was cut short
// after it is not refused when it is repeated.
func Restore(ctx context.Context, path, url, id string) error {
	if _, err := SnapshotSchema(ctx, path); err != nil {
		return err
	}
	scheme, rest, _ := strings.Cut(url, ":")
	switch scheme {
	case "sqlite":
		return restoreFile(ctx, path, rest)
	case "postgres", "postgresql":
		return restorePostgres(ctx, path, url, id)
	}
	return berth.Errorf(berth.Invalid, "%q is not a supported database; use sqlite:PATH or postgres://…", url)
}

// restoreFile moves a snapshot to where the database belongs.
func restoreFile(ctx context.Context, path, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return berth.Errorf(berth.Conflict, "the database %s exists; move it away first", to)
	}
	pool, err := existing(path, "synchronous(FULL)")
	if err != nil {
		return err
	}
	for _, t := range passing {
		var one int
		found := pool.QueryRowContext(ctx, "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", t).Scan(&one) == nil
		if found && err == nil { // an older schema may not have it
			_, err = pool.ExecContext(ctx, "DELETE FROM "+t)
		}
	}
	if err = errors.Join(err, pool.Close()); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Chmod(0o600), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path, to)
}

func restorePostgres(ctx context.Context, path, url, id string) error {
	in, err := existing(path, "query_only(1)")
	if err != nil {
		return err
	}
	defer in.Close()
	from, err := in.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer from.Rollback() //nolint:errcheck // it has read only
	pool, where, err := postgresPool(url)
	if err != nil {
		return err
	}
	defer pool.Close()
	err = func() error {
		to, err := pool.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer to.Rollback() //nolint:errcheck // nothing is left of it
		if _, err := to.ExecContext(ctx, postgresDialect.lockSchema); err != nil {
			return err
		}
		done, err := restored(ctx, to, where, id)
		if err != nil || done {
			return err
		}
		if err := fillPostgres(ctx, from, to, id); err != nil {
			return err
		}
		return to.Commit()
	}()
	return (&DB{d: postgresDialect, where: where}).fault(err)
}

// restored says whether the database is what the restore with this id made of it. It is an error
// when there is anything else in it.
func restored(ctx context.Context, to *sql.Tx, where, id string) (bool, error) {
	var one int
	err := to.QueryRowContext(ctx, postgresDialect.anyTable).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var last string
	err = to.QueryRowContext(ctx, postgresDialect.text(postgresDialect.hasTable), "meta").Scan(&one)
	if err == nil {
		err = to.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = $1", restoreKey).Scan(&last)
	}
	if err == nil && last == id {
		return true, nil
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return false, err
	}
	return false, berth.Errorf(berth.Conflict, "database %s is not empty; restore into an empty one", where)
}

func fillPostgres(ctx context.Context, from, to *sql.Tx, id string) error {
	var schema int
	if err := from.QueryRowContext(ctx, "SELECT version FROM schema_version").Scan(&schema); err != nil {
		return err
	}
	if err := createSchema(ctx, to, postgresDialect, schema); err != nil {
		return err
	}
	tables, err := tablesOf(ctx, from)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if err := copyTable(ctx, from, to, postgresDialect, t); err != nil {
			return err
		}
	}
	if _, err := to.ExecContext(ctx, "DELETE FROM meta WHERE key = $1 OR key LIKE $2", restoreKey, markPrefix+"%"); err != nil {
		return err
	}
	var text string
	err = to.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = $1", leadKey).Scan(&text)
	if err == nil {
		l := decodeLeader(text)
		leader, err := json.Marshal(leader{Term: l.Term + termLeap})
		if err != nil {
			return err
		}
		if _, err := to.ExecContext(ctx, "UPDATE meta SET value = $1 WHERE key = $2", string(leader), leadKey); err != nil {
			return err
		}
	} else if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	_, err = to.ExecContext(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2)", restoreKey, id)
	return err
}

// SnapshotBlobs calls f for each blob in a snapshot's index: the hash and size of its content, or
// the file of a live one. Contents with several names come once.
func SnapshotBlobs(ctx context.Context, path string, f func(hash string, size int64, live string) error) error {
	pool, err := existing(path, "query_only(1)")
	if err != nil {
		return err
	}
	defer pool.Close()
	rows, err := pool.QueryContext(ctx, "SELECT hash, max(size), live FROM blobs WHERE hash <> '' OR live <> '' GROUP BY hash, live ORDER BY hash, live")
	if err != nil {
		return sqliteFault(path, err)
	}
	defer rows.Close()
	for rows.Next() {
		var hash, live string
		var size int64
		if err := rows.Scan(&hash, &size, &live); err != nil {
			return err
		}
		if err := f(hash, size, live); err != nil {
			return err
		}
	}
	return rows.Err()
}
