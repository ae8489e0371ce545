package store

import (
	"context"
	"embed"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// schemaFiles are the migrations, one file per schema version: NNNN_WHAT.sql. They are only ever
// added to.
//
//go:embed schema/*.sql
var schemaFiles embed.FS

// migrations are the texts of schemaFiles in order; the first leads to version 1.
func migrations() ([]string, error) {
	entries, err := schemaFiles.ReadDir("schema") // sorted by name
	if err != nil {
		return nil, err
	}
	var all []string
	for i, e := range entries {
		number, _, _ := strings.Cut(e.Name(), "_")
		if n, err := strconv.Atoi(number); err != nil || n != i+1 {
			return nil, berth.Errorf(berth.Internal, "schema file %s is out of order", e.Name())
		}
		b, err := schemaFiles.ReadFile("schema/" + e.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, string(b))
	}
	return all, nil
}

// migrate brings the schema to this build's version, unless servers of another home use it.
func (db *DB) migrate(ctx context.Context, s *session) error {
	steps, err := migrations()
	if err != nil {
		return err
	}
	from := 0
	err = db.untilFree(ctx, func() (other string, err error) {
		from, other, err = db.tryMigrate(ctx, s, steps)
		return other, err
	})
	if err == nil && from < len(steps) {
		db.log.Info("schema migrated", "from", from, "to", len(steps))
	}
	return db.fault(err)
}

// tryMigrate does it in one transaction: a crash leaves the old schema or the new one. When a
// server of another home uses the database it changes nothing, and names that.
func (db *DB) tryMigrate(ctx context.Context, s *session, steps []string) (from int, other string, err error) {
	if _, err := s.exec(ctx, db.d.beginWrite); err != nil {
		return 0, "", err
	}
	from, other, err = db.migrateFrom(ctx, s, steps)
	if err == nil && other == "" {
		_, err = s.exec(ctx, "COMMIT")
	}
	if err != nil || other != "" {
		s.exec(ctx, "ROLLBACK") //nolint:errcheck // the first error says it
	}
	return from, other, err
}

func (db *DB) migrateFrom(ctx context.Context, s *session, steps []string) (from int, other string, err error) {
	if db.d.lockSchema != "" {
		if _, err := s.exec(ctx, db.d.lockSchema); err != nil {
			return 0, "", err
		}
	}
	if from, err = db.schemaVersion(ctx, s); err != nil {
		return 0, "", err
	}
	if from > len(steps) {
		return 0, "", berth.Errorf(berth.Unsupported, "database %s was created by a newer Berth (schema %d, this one knows %d): "+
			"run that version or a later one", db.where, from, len(steps))
	}
	if from < len(steps) {
		if other, err = db.foreign(ctx, s); err != nil || other != "" {
			return from, other, err
		}
	}
	words := strings.NewReplacer(db.d.schema...)
	for i := from; i < len(steps); i++ {
		for stmt := range strings.SplitSeq(steps[i], ";\n") {
			if blank(stmt) {
				continue
			}
			if _, err := s.conn.ExecContext(ctx, words.Replace(stmt)); err != nil {
				return 0, "", berth.Errorf(berth.Internal, "schema %d of database %s: %w", i+1, db.where, err)
			}
		}
	}
	if from < len(steps) {
		_, err = s.exec(ctx, "UPDATE schema_version SET version = ?", len(steps))
	}
	return from, "", err
}

// schemaVersion reads the version, and makes its table in a new database.
func (db *DB) schemaVersion(ctx context.Context, s *session) (int, error) {
	var one, version int
	found, err := s.row(ctx, []any{&one}, db.d.hasTable, "schema_version")
	if err != nil {
		return 0, err
	}
	if found {
		_, err := s.row(ctx, []any{&version}, "SELECT version FROM schema_version")
		return version, err
	}
	if other, err := s.row(ctx, []any{&one}, db.d.anyTable); err != nil {
		return 0, err
	} else if other {
		return 0, berth.Errorf(berth.Invalid, "database %s contains tables that are not Berth's; use a separate database", db.where)
	}
	words := strings.NewReplacer(db.d.schema...)
	for _, q := range []string{"CREATE TABLE schema_version (version INTEGER NOT NULL)", "INSERT INTO schema_version VALUES (0)"} {
		if _, err := s.conn.ExecContext(ctx, words.Replace(q)); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// blank reports whether a piece of a schema file has comments only.
func blank(stmt string) bool {
	for line := range strings.Lines(stmt) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			return false
		}
	}
	return true
}
