package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"
)

// A session is one connection with its prepared statements. One goroutine uses it at a time.
type session struct {
	conn   *sql.Conn
	d      *dialect
	direct driver.ConnPrepareContext // the driver's own end of conn, where statements go straight to it
	stmts  map[string]stmt
	args   []driver.NamedValue // of the statement that is being run directly
}

// A stmt is a prepared statement: of database/sql, or of the driver itself.
type stmt struct {
	*sql.Stmt
	direct driver.Stmt
}

// A row is what a query reads.
type row interface{ Scan(dest ...any) error }

func newSession(ctx context.Context, pool *sql.DB, d *dialect) (*session, error) {
	c, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{conn: c, d: d, stmts: make(map[string]stmt)}
	if d.remote {
		return s, nil
	}
	// What database/sql does about a statement costs a good part of what SQLite does. It is all for
	// pools and lost connections: this one is ours until it is closed, and cannot be lost.
	err = c.Raw(func(end any) error {
		s.direct = end.(driver.ConnPrepareContext)
		return nil
	})
	return s, err
}

// stmt is q prepared. The set of texts is small and fixed, so none is ever dropped.
func (s *session) stmt(q string) (st stmt, err error) {
	st, ok := s.stmts[q]
	if ok {
		return st, nil
	}
	if s.direct != nil {
		st.direct, err = s.direct.PrepareContext(context.Background(), s.d.text(q))
	} else {
		st.Stmt, err = s.conn.PrepareContext(context.Background(), s.d.text(q))
	}
	if err != nil {
		return st, err
	}
	s.stmts[q] = st
	return st, nil
}

// exec runs q and returns the number of rows it changed.
func (s *session) exec(ctx context.Context, q string, args ...any) (int64, error) {
	st, err := s.stmt(q)
	if err != nil {
		return 0, err
	}
	var res driver.Result
	if st.direct != nil {
		res, err = st.direct.(driver.StmtExecContext).ExecContext(ctx, s.values(args))
	} else {
		res, err = st.ExecContext(ctx, args...)
	}
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// query runs q and calls scan once per row until it returns false.
func (s *session) query(ctx context.Context, scan func(row) (bool, error), q string, args ...any) error {
	st, err := s.stmt(q)
	if err != nil {
		return err
	}
	if st.direct != nil {
		return s.queryDirect(ctx, st.direct, scan, args)
	}
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		more, err := scan(rows)
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	return rows.Err()
}

// row reads the first row of q into dest and says whether there was one.
func (s *session) row(ctx context.Context, dest []any, q string, args ...any) (bool, error) {
	found := false
	err := s.query(ctx, func(r row) (bool, error) {
		found = true
		return false, r.Scan(dest...)
	}, q, args...)
	return found, err
}

// close ends the connection. Statements go with it.
func (s *session) close() {
	for _, st := range s.stmts {
		if st.direct != nil {
			st.direct.Close()
		} else {
			st.Close()
		}
	}
	// Without this the connection would go back to the pool, in whatever state it is.
	s.conn.Raw(func(any) error { return driver.ErrBadConn }) //nolint:errcheck // its own error comes back
	s.conn.Close()
}

// A sessions pool lends the connections that readers use. The one used last is lent first, because
// its caches are warm.
type sessions struct {
	pool *sql.DB
	d    *dialect
	sem  chan struct{}
	quit chan struct{}

	mu   sync.Mutex
	free []*session
}

func newSessions(pool *sql.DB, d *dialect, limit int) *sessions {
	return &sessions{pool: pool, d: d, sem: make(chan struct{}, limit), quit: make(chan struct{})}
}

func (p *sessions) get(ctx context.Context) (*session, error) {
	select {
	case <-p.quit:
		return nil, ErrClosed
	case p.sem <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.mu.Lock()
	if n := len(p.free); n > 0 {
		s := p.free[n-1]
		p.free = p.free[:n-1]
		p.mu.Unlock()
		return s, nil
	}
	p.mu.Unlock()
	s, err := newSession(ctx, p.pool, p.d)
	if err != nil {
		<-p.sem
		return nil, err
	}
	return s, nil
}

// put gives a session back; a broken one is closed.
func (p *sessions) put(s *session, broken bool) {
	if broken {
		s.close()
	} else {
		p.mu.Lock()
		p.free = append(p.free, s)
		p.mu.Unlock()
	}
	<-p.sem
}

// close waits for all sessions to come back and ends them.
func (p *sessions) close() {
	close(p.quit)
	for range cap(p.sem) {
		p.sem <- struct{}{}
	}
	for _, s := range p.free {
		s.close()
	}
	p.free = nil
}
