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

// leadKey is the key of the leader in the table meta.
const leadKey = "server"

// A leader is what is stored of the server that leads. Every update reads it under the lock that
// updates take turns with, and those of an earlier term are refused.
type leader struct {
	Term  int64     `json:"term"`
	ID    string    `json:"id"`
	Home  string    `json:"home"`
	Who   string    `json:"who"`
	Since time.Time `json:"since"`
}

func (l leader) String() string {
	if l.Who == "" {
		return "another server"
	}
	return fmt.Sprintf("%s, since %s", l.Who, l.Since.UTC().Format(time.RFC3339))
}

// decodeLeader reads what is stored. What cannot be read is somebody else's.
func decodeLeader(text string) (l leader) {
	_ = json.Unmarshal([]byte(text), &l)
	return l
}

// The causes of the end of a term's context.
var (
	errDeposed = errors.New("another server is the leader now")
	errUnheard = errors.New("the database has not heard this server for so long that another may lead")
)

// Lead runs fn while this server leads: at once where there can be no other server, else each time
// it is elected, in a context of that term. The context ends when the database has not heard this
// server for so long that another may be elected, or when another leads; updates made in the term
// are refused from then on. When fn has returned the server is a candidate again; another may be
// elected before. Lead returns when ctx has ended, or fn has returned in a term.
func (db *DB) Lead(ctx context.Context, fn func(context.Context) error) error {
	m := db.member
	if m == nil {
		return fn(ctx)
	}
	for {
		m.stand()
		term, err := m.elected(ctx)
		if err != nil {
			return nil //nolint:nilerr // it was asked to end, or Guard says why
		}
		db.log.Info("this server is the leader", "term", term)
		why, err := m.serve(ctx, term, fn)
		if why == nil {
			m.candidate.Store(false)
			return err
		}
		db.log.Warn("this server is no longer the leader", "term", term, "why", why, "leader", m.standing.Load().leader.Who)
	}
}

// stand makes this server a candidate.
func (m *member) stand() {
	m.candidate.Store(true)
	select {
	case m.stands <- struct{}{}:
	default:
	}
}

// elected waits for a term of this server.
func (m *member) elected(ctx context.Context) (int64, error) {
	for {
		moved := *m.moved.Load()
		if s := m.standing.Load(); m.leads(s) && s.left() > 0 {
			return s.leader.Term, nil
		}
		select {
		case <-moved:
		case <-m.expired:
			return 0, m.why
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// serve runs fn for a term. over is why the term ended before fn did, and ctx.
func (m *member) serve(ctx context.Context, term int64, fn func(context.Context) error) (over, err error) {
	ctx, end := context.WithCancelCause(berth.WithTerm(ctx, term))
	defer end(nil)
	done := make(chan error, 1)
	go func() { done <- fn(ctx) }()
	for {
		moved := *m.moved.Load()
		s := m.standing.Load()
		if over = m.over(s, term); over != nil {
			m.candidate.Store(false) // until what was begun has ended
			end(over)
			return over, <-done
		}
		lapses := time.NewTimer(s.left())
		select {
		case err := <-done:
			lapses.Stop()
			return nil, err
		case <-m.expired: // Guard says why
			lapses.Stop()
			end(m.why)
			return nil, <-done
		case <-moved:
			lapses.Stop()
		case <-lapses.C:
		}
	}
}

// over is why a term of this server is over, nil when it is not. A leader that is cut off hears of
// no other, so it goes by its own clock.
func (m *member) over(s *standing, term int64) error {
	switch {
	case !m.leads(s) || s.leader.Term != term:
		return errDeposed
	case s.left() <= 0:
		return errUnheard
	}
	return nil
}

func (m *member) leads(s *standing) bool { return s.leader.ID == m.id }

// left is how long no other server can be elected yet, if this one leads.
func (s *standing) left() time.Duration { return lease - time.Since(s.began) }

// Leads says whether this server leads for certain: no other can have been elected before now. What
// a leader does beside the database counts only if it still leads when that is done.
func (db *DB) Leads() bool {
	m := db.member
	if m == nil {
		return true
	}
	s := m.standing.Load()
	return m.leads(s) && s.left() > 0
}

// Heard returns nil while the database receives this server's heartbeat. A server without it is not
// the leader, and does not know who is.
func (db *DB) Heard() error {
	if m := db.member; m != nil && m.standing.Load().left() <= 0 {
		return berth.Errorf(berth.Unavailable, "this server has lost its database: it is not the leader, and another server may be")
	}
	return nil
}

// campaign makes this server the leader, unless one lives. Updates that are under way end before,
// and none of an earlier term comes after.
func (m *member) campaign(ctx context.Context) (s standing, err error) {
	err = pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) error {
		// the next beat finds out if it is not ours
		s, err = m.writeLeader(ctx, tx, leader{ID: m.id, Home: m.Home, Who: m.Who}, func(s standing) bool { return s.leader.Home == m.Home && !s.alive })
		return err
	})
	return s, err
}

// resign begins a term of nobody if this server leads, so that others may be elected.
func (m *member) resign(ctx context.Context) (s standing, err error) {
	err = pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) error {
		s, err = m.writeLeader(ctx, tx, leader{Home: m.Home}, func(s standing) bool { return m.leads(&s) })
		return err
	})
	return s, err
}

// writeLeader begins the next term, if it may. The result is who leads then.
func (m *member) writeLeader(ctx context.Context, tx pgx.Tx, next leader, may func(standing) bool) (s standing, err error) {
	if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = on"); err != nil {
		return s, err
	}
	if _, err := tx.Exec(ctx, "SELECT rev FROM head WHERE one = 1 FOR UPDATE"); err != nil {
		return s, err
	}
	if s, err = readLeader(ctx, tx); err != nil || !may(s) {
		return s, err
	}
	// Terms grow with time, so that those of a database that was restored, or made anew, are later
	// than those before.
	next.Since = time.Now().UTC()
	if err := tx.QueryRow(ctx, "SELECT greatest($1::bigint + 1, "+databaseTime+" / 1000000)", s.leader.Term).Scan(&next.Term); err != nil {
		return s, err
	}
	text, err := json.Marshal(next)
	if err != nil {
		return s, err
	}
	_, err = tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value", leadKey, string(text))
	return standing{leader: next, alive: next.ID != ""}, err
}

// readLeader is who leads, and whether that server lives.
func readLeader(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) (s standing, err error) {
	var text string
	err = q.QueryRow(ctx, "SELECT m.value, coalesce(s.seen > "+databaseTime+" - $2, false), coalesce(s.address, ''), coalesce(s.socket, '')"+
		" FROM meta m LEFT JOIN servers s ON s.id = m.value::jsonb ->> 'id' WHERE m.key = $1", leadKey, int64(lease)).
		Scan(&text, &s.alive, &s.address, &s.socket)
	if errors.Is(err, pgx.ErrNoRows) {
		return s, nil
	}
	s.leader = decodeLeader(text)
	return s, err
}

// replaced is the error of a server that is not one of its database any more.
func (db *DB) replaced(by string) error {
	return berth.Errorf(berth.Unavailable, "database %s was taken over by %s; this server stops, because it must no longer change it", db.where, by)
}

// past is the error of an update of a term that is over.
func (db *DB) past(now leader) error {
	msg := fmt.Sprintf("%s is now the leader of the servers on database %s", now, db.where)
	if now.ID == "" {
		msg = fmt.Sprintf("this server is no longer the leader on database %s; a new one is elected within seconds", db.where)
	}
	return &berth.Error{Code: berth.Unavailable, Msg: msg, Err: errDeposed}
}
