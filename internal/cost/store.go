package cost

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/sizes"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// Kinds of documents. Nodes and meters are written by whoever makes and gives back nodes.
const (
	Kind      = "budgets"
	kindMeter = "meters"
	kindNode  = "nodes"
)

// reader reads the meters of a workspace.
type reader struct {
	tx        *store.Tx
	workspace string
	local     berth.LocalTerms
	sizes     *sizes.Catalogue // read when a meter does not say its currency
}

// meter is what a document of kind meters says.
func (r *reader) meter(d *store.Doc) (m berth.Meter, err error) {
	if m, err = store.State[berth.Meter](d); err != nil {
		return m, berth.Errorf(berth.Internal, "meter %s cannot be read: %w", d.Name, err)
	}
	m.Currency, err = r.currency(m.Size, m.Currency, m.Priced)
	return m, err
}

// currency is the one a price is in: where it was not written down, that of the size.
func (r *reader) currency(size, currency string, priced bool) (string, error) {
	if currency != "" || !priced {
		return currency, nil
	}
	if r.sizes == nil {
		c, err := sizes.LoadTx(r.tx)
		if err != nil {
			return "", err
		}
		r.sizes = &c
	}
	s, _ := r.sizes.Find(size)
	return s.Currency, nil
}

// live is what has not ended: nodes, and the tasks on them, up to now.
func (r *reader) live(now time.Time) ([]berth.Meter, error) {
	docs, err := r.tx.All(store.Query{Workspace: r.workspace, Kind: kindNode, Asc: true})
	machine, priced := r.local.Meter()
	if err != nil || len(docs) == 0 && !priced {
		return nil, err
	}
	own, err := r.instances()
	if err != nil {
		return nil, err
	}
	var out []berth.Meter
	nodes := map[string]berth.Meter{}
	for _, d := range docs {
		m, err := r.node(d, now)
		if err != nil {
			return nil, err
		}
		m.Instance = own[strings.ToLower(m.Compute)]
		nodes[m.Node] = m
		out = append(out, m)
	}
	// Not by all tasks: thousands may wait.
	jobs, err := r.tx.All(store.Query{Workspace: r.workspace, Kind: "jobs", Status: berth.StatusTexts(begun), NoBody: true, Asc: true})
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		tasks, err := r.tx.TasksOf(r.workspace, j.Name)
		if err != nil {
			return nil, err
		}
		for _, t := range tasks {
			m, ok := nodes[t.Node]
			if berth.IsLocal(t.Compute) {
				m, ok = machine, priced
			}
			if !ok || t.State == berth.TaskDone || t.Times.Placed.IsZero() {
				continue
			}
			out = append(out, on(m, t, now))
		}
	}
	return out, nil
}

// node is the life of a node up to now.
func (r *reader) node(d *store.Doc, now time.Time) (m berth.Meter, err error) {
	n, err := target.Node(d)
	if err != nil {
		return m, berth.Errorf(berth.Internal, "node %s cannot be read: %w", d.Name, err)
	}
	m = berth.Meter{
		Compute: n.Compute, Node: n.Name, Size: n.Size, Low: n.Low, Rate: n.Price, Priced: n.Priced, Slots: n.Slots, User: n.User,
		From: n.CostsFrom(), To: now,
	}
	if m.From.IsZero() {
		m.From = now
	}
	m.Currency, err = r.currency(n.Size, n.Currency, n.Priced)
	return m, err
}

// on is what a task that has not been written down yet uses of a node.
func on(m berth.Meter, t *berth.Task, now time.Time) berth.Meter {
	m.Job, m.User, m.From, m.To, m.Instance = t.Job, t.User, t.Times.Placed, now, false
	m.Rate /= float64(max(1, m.Slots))
	if !t.Times.Ended.IsZero() && t.Times.Ended.Before(now) {
		m.To = t.Times.Ended
	}
	return m
}

// instances are the computes that are somebody's own, in lower case.
func (r *reader) instances() (map[string]bool, error) {
	docs, err := r.tx.All(store.Query{Workspace: r.workspace, Kind: "computes"})
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, d := range docs {
		var v struct {
			Properties struct {
				ComputeType string `json:"computeType"`
			} `json:"properties"`
		}
		if json.Unmarshal(d.Body, &v) == nil && strings.EqualFold(v.Properties.ComputeType, berth.TypeInstance) {
			out[strings.ToLower(d.Name)] = true
		}
	}
	return out, nil
}

// ended is the meters that were written since a time, the oldest first, and the last document among
// all.
func (r *reader) ended(since time.Time) (out []berth.Meter, last int64, err error) {
	for q := (store.Query{Workspace: r.workspace, Kind: kindMeter}); ; {
		docs, err := r.tx.List(q)
		if err != nil {
			return nil, 0, err
		}
		// A meter is written when its stretch is over: what was written before the window is not in
		// it. Where all of a page was, so was the rest, unless the clock was set back meanwhile by
		// more than a page.
		within := false
		for _, d := range docs {
			last = max(last, d.ID)
			within = within || !d.Created.Before(since)
			m, err := r.meter(d)
			if err != nil {
				return nil, 0, err
			}
			out = append(out, m)
		}
		if !within {
			slices.Reverse(out)
			return out, last, nil
		}
		q.After = docs[len(docs)-1].ID
	}
}

// Spending is what a workspace spent within a window, grouped by keys: see Tally. What has not
// ended is counted up to now.
func Spending(tx *store.Tx, workspace string, local berth.LocalTerms, by []string, w Window, now time.Time) (out berth.Spending, err error) {
	r := &reader{tx: tx, workspace: workspace, local: local}
	t := tally{by: by, groups: lines{}, totals: lines{}}
	if err := r.days(w, t.add); err != nil {
		return out, err
	}
	ended, _, err := r.ended(w.Since)
	if err != nil {
		return out, err
	}
	live, err := r.live(now)
	if err != nil {
		return out, err
	}
	_, rolled, err := loadRolled(tx, workspace)
	if err != nil {
		return out, err
	}
	meters := append(ended, live...)
	for i, m := range meters {
		meters[i] = rolled.left(m)
	}
	t.meters(meters, w)
	return t.spending(w), nil
}

// Account is a budget with where it stands.
type Account struct {
	Doc *store.Doc
	berth.BudgetStatus
	Ledger Ledger
	Ended  bool // it was used up when it was last settled
}

// read reads a budget as it was last settled.
func (a *Account) read(d *store.Doc) (err error) {
	a.Doc = d
	if err := json.Unmarshal(d.Body, &a.Budget); err != nil {
		return berth.Errorf(berth.Internal, "budget %s cannot be read: %w", d.Name, err)
	}
	if a.Ledger, err = store.State[Ledger](d); err != nil {
		return berth.Errorf(berth.Internal, "the ledger of budget %s cannot be read: %w", d.Name, err)
	}
	a.Ended = a.Ledger.Ended
	return nil
}

// UsedUp is the budgets of a workspace that were used up when they were last settled.
func UsedUp(tx *store.Tx, workspace string) (out []berth.Budget, err error) {
	docs, err := tx.All(store.Query{Workspace: workspace, Kind: Kind, Asc: true})
	for _, d := range docs {
		var a Account
		if err := a.read(d); err != nil {
			return nil, err
		}
		if a.Ended {
			out = append(out, a.Budget)
		}
	}
	return out, err
}

// Charged is the title of the first among budgets that pays for a user's work, empty when none
// does.
func Charged(budgets []berth.Budget, user string) string {
	for _, b := range budgets {
		if covers(b, user) {
			return Title(b)
		}
	}
	return ""
}

// Accounts is the budgets of a workspace as they stand now. Their ledgers are brought up to date,
// but not written.
func Accounts(tx *store.Tx, workspace string, local berth.LocalTerms, now time.Time) ([]*Account, error) {
	docs, err := tx.All(store.Query{Workspace: workspace, Kind: Kind, Asc: true})
	if err != nil || len(docs) == 0 {
		return nil, err
	}
	r := &reader{tx: tx, workspace: workspace, local: local}
	live, err := r.live(now)
	if err != nil {
		return nil, err
	}
	held, err := reservations(tx, workspace)
	if err != nil {
		return nil, err
	}
	out := make([]*Account, len(docs))
	for i, d := range docs {
		a := &Account{}
		if err := a.read(d); err != nil {
			return nil, err
		}
		b := a.Budget
		from, _ := Period(b, d.Created, now)
		if err := r.bring(&a.Ledger, b, from, live); err != nil {
			return nil, err
		}
		a.BudgetStatus = StatusOf(b, d.Created, a.Ledger, live, held, now)
		out[i] = a
	}
	return out, nil
}

// bring writes the meters that are new into a ledger. That of another period than from begins is
// made again from all meters: a clock that is set can open a period again.
func (r *reader) bring(l *Ledger, b berth.Budget, from time.Time, live []berth.Meter) error {
	if !l.From.Equal(from) {
		meters, last, err := r.ended(from)
		if err != nil {
			return err
		}
		*l = Ledger{From: from, Cursor: max(last, l.Cursor)}
		rolled, err := r.addDays(l, b, live)
		if err != nil {
			return err
		}
		for _, m := range meters {
			l.Add(b, rolled.left(m))
		}
	} else if err := r.follow(l, b); err != nil {
		return err
	}
	lives := map[string]bool{}
	for _, m := range live {
		lives[m.Node] = true
	}
	for node := range l.Tasks {
		if !lives[node] {
			delete(l.Tasks, node) // it went without a meter of its own
		}
	}
	return nil
}

// addDays writes into a ledger that begins what was rolled up, and returns how far that is.
func (r *reader) addDays(l *Ledger, b berth.Budget, live []berth.Meter) (rolled, error) {
	_, s, err := loadRolled(r.tx, r.workspace)
	if err != nil || s.First.IsZero() {
		return s, err
	}
	for _, m := range live {
		until, ok := s.Nodes[m.Node]
		if m.Job != "" || !ok {
			continue
		}
		m.To = until
		// All of its life is counted as long as it lives, and when it is over.
		if paid, unknown, any := share(b, m, l.From); any {
			l.paidFor(m.Node, paid)
			if b.User == "" {
				l.Unknown -= unknown
			}
		}
	}
	return s, r.days(Window{l.From, s.Last.Add(day)}, func(p part) { l.addPart(b, p) })
}

func (r *reader) follow(l *Ledger, b berth.Budget) error {
	for q := (store.Query{Workspace: r.workspace, Kind: kindMeter, Asc: true}); ; {
		q.After = l.Cursor
		docs, err := r.tx.List(q)
		if err != nil || len(docs) == 0 {
			return err
		}
		for _, d := range docs {
			m, err := r.meter(d)
			if err != nil {
				return err
			}
			l.Add(b, m)
			l.Cursor = d.ID
		}
	}
}

// Changed reports whether an account's ledger is not what is written.
func (a *Account) Changed() (bool, error) {
	own, err := json.Marshal(a.Ledger)
	return !bytes.Equal(own, a.Doc.Own), err
}

// Save writes an account's ledger where it has changed.
func (a *Account) Save(tx *store.Tx) error {
	own, err := json.Marshal(a.Ledger)
	if err != nil || bytes.Equal(own, a.Doc.Own) {
		return err
	}
	a.Doc.Own = own
	return tx.Save(a.Doc)
}
