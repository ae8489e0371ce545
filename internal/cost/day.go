package cost

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Kinds of documents that RollUp writes.
const (
	kindDay    = "spending"       // part of what was spent on a day; Parent is the day
	kindRolled = "spendingRolled" // one for each workspace: how far its meters are rolled up
)

// dayLines is how many lines a document of a day takes before another is begun.
const dayLines = 2000

const day = 24 * time.Hour

func dayOf(t time.Time) time.Time { return t.UTC().Truncate(day) }

// dayUse is what was used on a day by the jobs of a group. The time that no job accounts for is
// that of the job "".
type dayUse struct {
	dayGroup
	Jobs map[string]hoursAndCost `json:"jobs"`
}

type hoursAndCost [2]float64

// dayGroup is what tells a dayUse from others of its day.
type dayGroup struct {
	User     string `json:"user,omitempty"`
	Compute  string `json:"compute"`
	Size     string `json:"size,omitempty"`
	Low      bool   `json:"low,omitempty"`
	Priced   bool   `json:"priced,omitempty"`
	Idle     bool   `json:"idle,omitempty"`
	Currency string `json:"currency,omitempty"`
}

// daySums are sums under construction, by day.
type daySums map[time.Time]map[dayGroup]map[string]hoursAndCost

// add adds a piece of a node's time that lies within a day.
func (s daySums) add(at time.Time, p part) {
	g := dayGroup{User: p.User, Compute: p.Compute, Size: p.Size, Low: p.Low, Priced: p.Priced, Idle: p.idle, Currency: p.Currency}
	if s[at] == nil {
		s[at] = map[dayGroup]map[string]hoursAndCost{}
	}
	if s[at][g] == nil {
		s[at][g] = map[string]hoursAndCost{}
	}
	u := s[at][g][p.Job]
	s[at][g][p.Job] = hoursAndCost{u[0] + p.hours, u[1] + p.cost}
}

// parts gives out what a day's document says. Of a day that is only in part within the window,
// that share is counted: when within the day it was used is not known any more.
func (u dayUse) parts(at time.Time, w Window, yield func(part)) {
	whole, ok := w.clip(berth.Meter{From: at, To: at.Add(day)})
	if !ok {
		return
	}
	share := float64(whole.To.Sub(whole.From)) / float64(day)
	for job, v := range u.Jobs {
		yield(part{berth.Meter{
			Compute: u.Compute, Size: u.Size, Low: u.Low, Priced: u.Priced, Currency: u.Currency, Job: job, User: u.User, From: whole.From, To: whole.To,
		}, u.Idle, v[0] * share, v[1] * share})
	}
}

// rolled says how far the meters of a workspace are rolled up.
type rolled struct {
	First time.Time `json:"first,omitzero"` // the first and the last day with sums
	Last  time.Time `json:"last,omitzero"`
	// Nodes is until when the life of a node is in the sums, for nodes whose life is not wholly in
	// them.
	Nodes map[string]time.Time `json:"nodes,omitempty"`
}

// left is the part of a meter that is not in the sums.
func (s rolled) left(m berth.Meter) berth.Meter {
	if until := s.Nodes[m.Node]; m.From.Before(until) {
		m.From = until
	}
	return m
}

// loadRolled reads how far a workspace is rolled up; the document is nil where it is not.
func loadRolled(tx *store.Tx, workspace string) (*store.Doc, rolled, error) {
	d, err := tx.Get(workspace, kindRolled, "all", "")
	if berth.CodeOf(err) == berth.NotFound {
		return nil, rolled{}, nil
	}
	if err != nil {
		return nil, rolled{}, err
	}
	s, err := store.State[rolled](d)
	if err != nil {
		return nil, rolled{}, berth.Errorf(berth.Internal, "how far meters are rolled up cannot be read: %w", err)
	}
	return d, s, nil
}

// save writes how far a workspace is rolled up.
func (s rolled) save(tx *store.Tx, workspace string, d *store.Doc) error {
	fresh := d == nil
	if fresh {
		d = &store.Doc{Workspace: workspace, Kind: kindRolled, Name: "all", Body: json.RawMessage("{}")}
	}
	if err := store.SetState(d, s); err != nil {
		return err
	}
	if fresh {
		return tx.Insert(d)
	}
	return tx.Save(d)
}

// Shift moves how far the lives of nodes are rolled up, because the clock was set by d and the
// times of these nodes move with it.
func Shift(tx *store.Tx, workspace string, nodes map[string]bool, d time.Duration) error {
	doc, s, err := loadRolled(tx, workspace)
	if err != nil || doc == nil {
		return err
	}
	changed := false
	for name, at := range s.Nodes {
		if nodes[name] {
			s.Nodes[name], changed = at.Add(d), true
		}
	}
	if !changed {
		return nil
	}
	return s.save(tx, workspace, doc)
}

// save adds sums to the documents of their days.
func (s daySums) save(tx *store.Tx, workspace string) error {
	for at, groups := range s {
		text := at.Format(time.DateOnly)
		docs, err := tx.List(store.Query{Workspace: workspace, Kind: kindDay, Parent: text, NoBody: true})
		if err != nil {
			return err
		}
		var d *store.Doc
		var old []dayUse
		lines := 0
		if len(docs) > 0 { // the newest
			if d, err = tx.Get(workspace, kindDay, docs[0].Name, ""); err != nil {
				return err
			}
			if old, err = store.State[[]dayUse](d); err != nil {
				return err
			}
			for _, u := range old {
				lines += len(u.Jobs)
			}
		}
		fresh := d == nil || lines >= dayLines
		if fresh {
			d, old = &store.Doc{Workspace: workspace, Kind: kindDay, Name: fmt.Sprintf("%s.%d", text, len(docs)), Parent: text, Body: json.RawMessage("{}")}, nil
		}
		if err := store.SetState(d, merge(old, groups)); err != nil {
			return err
		}
		if fresh {
			err = tx.Insert(d)
		} else {
			err = tx.Save(d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// merge adds groups to what a document says.
func merge(old []dayUse, groups map[dayGroup]map[string]hoursAndCost) []dayUse {
	for _, u := range old {
		for job, v := range groups[u.dayGroup] {
			was := u.Jobs[job]
			u.Jobs[job] = hoursAndCost{was[0] + v[0], was[1] + v[1]}
		}
		delete(groups, u.dayGroup)
	}
	for g, jobs := range groups {
		old = append(old, dayUse{g, jobs})
	}
	return old
}

// days gives out what was rolled up within a window.
func (r *reader) days(w Window, yield func(part)) error {
	_, s, err := loadRolled(r.tx, r.workspace)
	if err != nil || s.First.IsZero() {
		return err
	}
	at := s.First
	if since := dayOf(w.Since); since.After(at) {
		at = since
	}
	for ; !at.After(s.Last) && at.Before(w.Until); at = at.Add(day) {
		docs, err := r.tx.All(store.Query{Workspace: r.workspace, Kind: kindDay, Parent: at.Format(time.DateOnly), Asc: true})
		if err != nil {
			return err
		}
		for _, d := range docs {
			uses, err := store.State[[]dayUse](d)
			if err != nil {
				return berth.Errorf(berth.Internal, "the sums of %s cannot be read: %w", d.Name, err)
			}
			for _, u := range uses {
				u.parts(at, w, yield)
			}
		}
	}
	return nil
}
