package quota

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/sizes"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// Kind is the kind of the documents that hold limits: Own is a Limit, Parent its workspace. They
// are kept for the whole server.
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
		lim, err := store.State[Limit](d)
		if err != nil {
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

// SetLimit sets the limit of a scope. Older limits are kept if they outlast it.
func SetLimit(tx *store.Tx, s Scope, g Grant) (Limit, error) {
	d, err := tx.Get("", Kind, s.Key(), "")
	lim := Limit{Scope: s}
	switch {
	case berth.CodeOf(err) == berth.NotFound:
		d = &store.Doc{Kind: Kind, Name: s.Key(), Parent: strings.ToLower(s.Workspace), CreatedBy: g.By}
	case err != nil:
		return lim, err
	default:
		if lim, err = store.State[Limit](d); err != nil {
			return lim, err
		}
	}
	created := len(d.Own) == 0
	lim = lim.With(g)
	if err := store.SetState(d, lim); err != nil {
		return lim, err
	}
	if created {
		return lim, tx.Insert(d)
	}
	return lim, tx.Save(d)
}

// Used is what every node that lives has, in all workspaces.
func Used(tx *store.Tx) (use []Use, err error) {
	err = eachNode(tx, func(n berth.Node, _ bool, tasks map[string]int) {
		use = append(use, Use{Workspace: n.Workspace, Family: n.Family, User: n.User, Low: n.Low, VCPUs: n.VCPUs, Shares: Shares(n, tasks)})
	})
	return use, err
}

// Running is what tasks use of the nodes of clusters, and instances as a whole, in all workspaces.
func Running(tx *store.Tx) (out []Task, err error) {
	err = eachNode(tx, func(n berth.Node, instance bool, tasks map[string]int) {
		t := Task{Workspace: n.Workspace, Family: n.Family, User: n.User, Low: n.Low, VCPUs: float64(n.VCPUs)}
		if instance {
			out = append(out, t)
		}
		for user, k := range tasks {
			t.User, t.VCPUs = user, float64(n.VCPUs*k)/float64(max(1, n.Slots))
			out = append(out, t)
		}
	})
	return out, err
}

// eachNode gives out every node that lives, whether it is an instance's, and how many tasks of
// which user are on it. An instance counts as its owner's, whoever has tasks there.
func eachNode(tx *store.Tx, give func(n berth.Node, instance bool, tasks map[string]int)) error {
	active, err := tx.ActiveTasks()
	if err != nil {
		return err
	}
	on := map[string]map[string]int{} // by node and user
	for _, t := range active {
		if t.State == berth.TaskWaiting || t.Node == "" {
			continue
		}
		if on[t.Node] == nil {
			on[t.Node] = map[string]int{}
		}
		on[t.Node][t.User]++
	}
	workspaces, err := tx.All(store.Query{Kind: "workspaces", NoBody: true})
	if err != nil {
		return err
	}
	for _, w := range workspaces {
		nodes, err := target.Nodes(tx, w.Name, "")
		if err != nil {
			return err
		}
		instance := map[string]bool{} // by compute
		for _, n := range nodes {
			if !n.Alive() {
				continue
			}
			own, known := instance[n.Compute]
			if !known {
				if own, err = isInstance(tx, w.Name, n.Compute); err != nil {
					return err
				}
				instance[n.Compute] = own
			}
			n.Workspace = w.Name
			tasks := on[n.Name]
			if own {
				tasks = nil
			}
			give(n, own, tasks)
		}
	}
	return nil
}

func isInstance(tx *store.Tx, workspace, compute string) (bool, error) {
	d, err := tx.Get(workspace, "computes", compute, "")
	if berth.CodeOf(err) == berth.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var v struct {
		Properties struct {
			ComputeType string `json:"computeType"`
		} `json:"properties"`
	}
	err = json.Unmarshal(d.Body, &v)
	return strings.EqualFold(v.Properties.ComputeType, berth.TypeInstance), err
}

// Expire drops the grants that have ended, and says so: an event for each limit that is another one
// since, or none. next is when the next ends; zero when none does.
func Expire(tx *store.Tx, now time.Time) (next time.Time, err error) {
	docs, err := tx.All(store.Query{Kind: Kind, Asc: true})
	if err != nil {
		return next, err
	}
	for _, d := range docs {
		lim, err := store.State[Limit](d)
		if err != nil {
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
