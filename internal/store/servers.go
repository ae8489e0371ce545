package store

import (
	"context"
	"time"
)

// A Server is one of the servers that use a database.
type Server struct {
	Name  string    `json:"name"`
	URL   string    `json:"url"`
	Since time.Time `json:"since"`
	Alive bool      `json:"alive"`
	Leads bool      `json:"leads"`
}

// Announce publishes the addresses of this server: url for clients, address and socket for the
// other servers on this machine.
func (db *DB) Announce(ctx context.Context, url, address, socket string) error {
	if db.member == nil {
		return nil
	}
	return db.Update(ctx, func(tx *Tx) error {
		_, err := tx.exec("UPDATE servers SET url = ?, address = ?, socket = ? WHERE id = ?", url, address, socket, db.server)
		return err
	})
}

// Servers returns the servers of the database by name; none if there can be only one.
func (db *DB) Servers(ctx context.Context) (all []Server, err error) {
	if db.member == nil {
		return nil, nil
	}
	err = db.View(ctx, func(tx *Tx) error {
		text, err := tx.Meta(leadKey)
		if err != nil {
			return err
		}
		leader := decodeLeader(text)
		return tx.query(func(r row) (bool, error) {
			var s Server
			var id string
			var since, alive int64
			err := r.Scan(&s.Name, &id, &s.URL, &since, &alive)
			s.Since, s.Alive = fromNanos(since), alive == 1
			s.Leads = s.Alive && id == leader.ID
			all = append(all, s)
			return true, err
		}, "SELECT name, id, url, since, CASE WHEN seen > "+databaseTime+" - ? THEN 1 ELSE 0 END FROM servers WHERE home = ? ORDER BY name", int64(lease), db.member.Home)
	})
	return all, err
}

// ServerAt reports whether one of the servers of the database is, or was, at a URL.
func (tx *Tx) ServerAt(url string) (bool, error) {
	var one int64
	return tx.row([]any{&one}, "SELECT 1 FROM servers WHERE url = ?", url)
}

// A Leadership says which server of a database is the leader, as one of them knows it.
type Leadership struct {
	Here            bool            // the server that was asked leads itself
	Address, Socket string          // else where the one that leads is reached from this machine
	Moved           <-chan struct{} // closed when this is not so any more; nil where there can be one server only
}

// Leader waits until there is a live leader and returns it. The error is that of ctx.
func (db *DB) Leader(ctx context.Context) (Leadership, error) {
	m := db.member
	if m == nil {
		return Leadership{Here: true}, nil
	}
	for {
		moved := *m.moved.Load() // before standing, so that no change is missed
		s := m.standing.Load()
		if m.leads(s) {
			return Leadership{Here: true, Moved: moved}, nil
		}
		if s.alive && s.address != "" {
			return Leadership{Address: s.address, Socket: s.socket, Moved: moved}, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return Leadership{}, ctx.Err()
		case <-m.expired:
			return Leadership{}, m.why
		}
	}
}

// Guard returns nil when ctx is done, and an error as soon as the database no longer belongs to
// this server. After that the server must not act on anything.
func (db *DB) Guard(ctx context.Context) error {
	switch {
	case db.member != nil:
		return db.member.guard(ctx)
	case db.file == nil:
		<-ctx.Done()
		return nil
	}
	return db.guardFile(ctx)
}

// refuse is why an update may not run: servers of another home have the database, or it belongs to
// a term that is over.
func (db *DB) refuse(term int64, at string) error {
	if db.member == nil {
		return nil
	}
	now := decodeLeader(at)
	switch {
	case now.Home != "" && now.Home != db.member.Home:
		return db.replaced(now.String())
	case term != 0 && term != now.Term:
		return db.past(now)
	}
	return nil
}
