package quota

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/sizes"
	"github.com/berthml/berth/internal/store"
)

// Kind is the kind of the documents that hold limits: Own is a Limit, Parent its workspace. They are kept for the whole server.
const Kind = "quotas"

// Load is the limits of documents of kind Kind, with the restricted families of a catalogue.
func Load(docs []*store.Doc, c sizes.Catalogue, def int) (Limits, error) {
	l := Limits{Default: def, Restricted: map[string]bool{}}
	for _, s := range c.All() {
		if s.Restricted {
			l.Restricted[sizes.FamilyKey(s.Family)] = true
		}
	}
	for _, d := range docs {
		var lim Limit
		if err := json.Unmarshal(d.Own, &lim); err != nil {
			return l, berth.Errorf(berth.Internal, "quota %s cannot be read: %w", d.Name, err)
		}
		l.All = append(l.All, lim)
	}
	return l, nil
}

// LoadTx is Load of what the store holds. def is the server's default, see Limits.
func LoadTx(tx *store.Tx, def int) (Limits, error) {
	c, err := sizes.LoadTx(tx)
	if err != nil {
		return Limits{}, err
	}
	docs, err := tx.All(store.Query{Kind: Kind, Asc: true})
	if err != nil {
		return Limits{}, err
	}
	return Load(docs, c, def)
}

// Give gives a scope a number. The older ones stay where they outlive it.
func Give(tx *store.Tx, s Scope, g Grant) (Limit, error) {
	d, err := tx.Get("", Kind, s.Key(), "")
	lim := Limit{Scope: s}
	switch {
	case berth.CodeOf(err) == berth.NotFound:
		d = &store.Doc{Kind: Kind, Name: s.Key(), Parent: strings.ToLower(s.Workspace), CreatedBy: g.By}
	case err != nil:
		return lim, err
	default:
		if err := json.Unmarshal(d.Own, &lim); err != nil {
			return lim, err
		}
	}
	created := len(d.Own) == 0
	lim = lim.With(g)
	if d.Own, err = json.Marshal(lim); err != nil {
		return lim, err
	}
	if created {
		return lim, tx.Insert(d)
	}
	return lim, tx.Save(d)
}

// Used is what every node that lives has, in all workspaces.
func Used(tx *store.Tx) ([]Use, error) {
	workspaces, err := tx.All(store.Query{Kind: "workspaces", NoBody: true})
	if err != nil {
		return nil, err
	}
	var use []Use
	for _, w := range workspaces {
		nodes, err := tx.All(store.Query{Workspace: w.Name, Kind: "nodes"})
		if err != nil {
			return nil, err
		}
		for _, d := range nodes {
			var n berth.Node
			if err := json.Unmarshal(d.Own, &n); err != nil {
				return nil, berth.Errorf(berth.Internal, "node %s cannot be read: %w", d.Name, err)
			}
			if n.Alive() {
				use = append(use, Use{Workspace: w.Name, Family: n.Family, User: n.User, Low: n.Low, VCPUs: n.VCPUs})
			}
		}
	}
	return use, nil
}

// Expire drops the grants that have ended, and says so: an event for each limit that is another one since, or none. next is when the next
// ends; zero when none does.
func Expire(tx *store.Tx, now time.Time) (next time.Time, err error) {
	docs, err := tx.All(store.Query{Kind: Kind, Asc: true})
	if err != nil {
		return next, err
	}
	for _, d := range docs {
		var lim Limit
		if err := json.Unmarshal(d.Own, &lim); err != nil {
			return next, berth.Errorf(berth.Internal, "quota %s cannot be read: %w", d.Name, err)
		}
		if at, ok := (Limits{All: []Limit{lim}}).Ends(now); ok && (next.IsZero() || at.Before(next)) {
			next = at
		}
		if err := lim.expire(tx, d, now); err != nil {
			return next, err
		}
	}
	return next, nil
}

// expire brings one limit up to date with the clock.
func (l Limit) expire(tx *store.Tx, d *store.Doc, now time.Time) error {
	var live []Grant
	var ended Grant // the last
	for _, g := range l.Grants {
		if g.Live(now) {
			live = append(live, g)
		} else if g.Expires.After(ended.Expires) {
			ended = g
		}
	}
	if len(live) == len(l.Grants) {
		return nil
	}
	reason := l.Title() + ", " + Cores(ended.VCPUs) + ", has ended"
	var err error
	if l.Grants = live; len(live) > 0 {
		reason += "; it is " + Cores(live[0].VCPUs) + " again"
		if d.Own, err = json.Marshal(l); err == nil {
			err = tx.Save(d)
		}
	} else {
		err = tx.Delete("", Kind, d.Name, "")
	}
	if err != nil {
		return err
	}
	data, err := json.Marshal(l)
	tx.Emit(berth.Event{Workspace: l.Workspace, Subject: "quotas/limit", Type: berth.EventQuota, Reason: reason, Data: data})
	return err
}
