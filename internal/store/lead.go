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

// A leader is what is stored of the server that leads. Every update reads it under the lock that updates take turns with, and those of
// an earlier term are refused.
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

// errDeposed is the cause of the end of a term's context.
var errDeposed = errors.New("another server leads now")

// Lead runs fn while this server leads: at once where there can be no other server, else each time it is elected, in a context of
// that term. Updates made in it are refused as soon as another server leads; a moment later it ends, and when fn has returned the
// server is a candidate again. Lead returns when ctx has ended, or fn has returned in a term.
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
		db.log.Info("this server leads", "term", term)
		if again, err := m.serve(ctx, term, fn); !again {
			m.candidate.Store(false)
			return err
		}
		db.log.Warn("this server does not lead any more", "term", term, "leader", m.standing.Load().leader.Who)
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
		if s := m.standing.Load(); m.leads(s) {
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

// serve runs fn for a term. again says that the term was ended by another server.
func (m *member) serve(ctx context.Context, term int64, fn func(context.Context) error) (again bool, err error) {
	ctx, end := context.WithCancelCause(berth.WithTerm(ctx, term))
	defer end(nil)
	done := make(chan error, 1)
	go func() { done <- fn(ctx) }()
	for {
		moved := *m.moved.Load()
		if s := m.standing.Load(); !m.leads(s) || s.leader.Term != term {
			m.candidate.Store(false) // until what was begun has ended
			end(errDeposed)
			err := <-done
			return true, err
		}
		select {
		case err := <-done:
			return false, err
		case <-m.expired: // Guard says why
			end(m.why)
			return false, <-done
		case <-moved:
		}
	}
}

func (m *member) leads(s *standing) bool { return s.leader.ID == m.id }

// Leads says whether this server leads for certain: no other can have been elected before now. What a leader does beside the database
// counts only if it still leads when that is done.
func (db *DB) Leads() bool {
	m := db.member
	if m == nil {
		return true
	}
	s := m.standing.Load()
	return m.leads(s) && time.Since(s.began) < lease
}

// campaign makes this server the leader, unless one lives. Updates that are under way end before, and none of an earlier term comes
// after.
func (m *member) campaign(ctx context.Context) (s standing, err error) {
	err = pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) error {
		s, err = m.writeLeader(ctx, tx, leader{ID: m.id, Home: m.Home, Who: m.Who})
		return err
	})
	return s, err
}

// writeLeader begins the next term, unless a leader of this home lives, or another home has taken the database over meanwhile.
func (m *member) writeLeader(ctx context.Context, tx pgx.Tx, next leader) (s standing, err error) {
	if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = on"); err != nil {
		return s, err
	}
	if _, err := tx.Exec(ctx, "SELECT rev FROM head WHERE one = 1 FOR UPDATE"); err != nil {
		return s, err
	}
	if s, err = readLeader(ctx, tx); err != nil {
		return s, err
	}
	if ours := s.leader.Home == m.Home; ours && s.alive || !ours && next.ID != "" { // the next beat finds out that it is not ours
		return s, nil
	}
	// Terms grow with time, so that those of a database that was restored, or made anew, are later than those before.
	next.Since = time.Now().UTC()
	if err := tx.QueryRow(ctx, "SELECT greatest($1::bigint + 1, "+databaseTime+" / 1000000)", s.leader.Term).Scan(&next.Term); err != nil {
		return s, err
	}
	text, err := json.Marshal(next)
	if err != nil {
		return s, err
	}
	_, err = tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value", leadKey, string(text))
	return standing{leader: next, alive: true}, err
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
	return berth.Errorf(berth.Unavailable, "database %s was taken over by %s; this server must not act on it any more and stops", db.where, by)
}

// past is the error of an update of a term that is over.
func (db *DB) past(now leader) error {
	return &berth.Error{Code: berth.Unavailable, Msg: fmt.Sprintf("%s leads the servers of database %s now", now, db.where), Err: errDeposed}
}
