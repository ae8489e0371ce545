package store

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
)

// values are the arguments of a statement as a driver takes them, good until the next.
func (s *session) values(args []any) []driver.NamedValue {
	s.args = s.args[:0]
	for i, a := range args {
		if n, ok := a.(int); ok {
			a = int64(n)
		}
		s.args = append(s.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return s.args
}

// queryDirect is query for a statement of the driver itself.
func (s *session) queryDirect(ctx context.Context, st driver.Stmt, scan func(row) (bool, error), args []any) (err error) {
	rows, err := st.(driver.StmtQueryContext).QueryContext(ctx, s.values(args))
	if err != nil {
		return err
	}
	defer func() {
		if cerr := rows.Close(); err == nil {
			err = cerr
		}
	}()
	r := make(directRow, len(rows.Columns()))
	for {
		switch err := rows.Next(r); err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
		if more, err := scan(r); err != nil || !more {
			return err
		}
	}
}

// A directRow is a row as the driver gives it. The bytes in it are its reader's own.
type directRow []driver.Value

// Scan is that of sql.Rows for the types this package reads into.
func (r directRow) Scan(dest ...any) error {
	if len(dest) != len(r) {
		return fmt.Errorf("a row of %d columns read into %d", len(r), len(dest))
	}
	for i, d := range dest {
		ok := true
		switch d := d.(type) {
		case *int64:
			*d, ok = r[i].(int64)
		case *int:
			var n int64
			n, ok = r[i].(int64)
			*d = int(n)
		case *string:
			*d, ok = r[i].(string)
		case *[]byte:
			*d, ok = r[i].([]byte)
			ok = ok || r[i] == nil
		case *any:
			*d = r[i]
		default:
			ok = false
		}
		if !ok {
			return fmt.Errorf("column %d is a %T and was read into a %T", i, r[i], d)
		}
	}
	return nil
}
