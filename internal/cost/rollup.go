package cost

import (
	"context"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Sizes of what RollUp does at once.
const (
	rollUpPlan  = 100_000 // meters that are looked at together
	rollUpBatch = 1000    // meters of a transaction
)

// RollUp replaces the meters of all workspaces that ended before a day by sums for each day, by
// everything that spending can be grouped by. It returns how many meters it replaced. Each step is
// one transaction, so that it may be interrupted at any time.
//
// A meter is replaced together with the part of its node's life that it lies in, because idle time
// is known only when all tasks of that time are. A node with a task that has been running since
// before the day is rolled up to the beginning of that task.
func RollUp(ctx context.Context, db *store.DB, local berth.LocalTerms, before time.Time) (total int, err error) {
	before = dayOf(before)
	var all []*store.Doc
	err = db.View(ctx, func(tx *store.Tx) (err error) {
		all, err = tx.All(store.Query{Kind: "workspaces", NoBody: true})
		return err
	})
	for _, w := range all {
		for err == nil {
			var n int
			if n, err = rollUp(ctx, db, local, w.Name, before); n == 0 {
				break
			}
			total += n
		}
	}
	return total, err
}

// rollUp is RollUp for one workspace, or for a part of what there is to do.
func rollUp(ctx context.Context, db *store.DB, local berth.LocalTerms, workspace string, before time.Time) (total int, err error) {
	var steps []step
	err = db.View(ctx, func(tx *store.Tx) (err error) {
		steps, err = (&reader{tx: tx, workspace: workspace, local: local}).plan(before)
		return err
	})
	for len(steps) > 0 && err == nil {
		n, size := 0, 0
		for n < len(steps) && (n == 0 || size+len(steps[n].over) <= rollUpBatch) {
			size += len(steps[n].over)
			n++
		}
		done := 0
		err = db.Update(ctx, func(tx *store.Tx) (err error) {
			done, err = (&reader{tx: tx, workspace: workspace, local: local}).replace(steps[:n])
			return err
		})
		if err == nil {
			total += done
		}
		steps = steps[n:]
	}
	return total, err
}

// entry is a meter with its document.
type entry struct {
	name string
	m    berth.Meter
}

// step is a part of a node's time that is rolled up.
type step struct {
	node  string
	life  *entry      // nil when the node is not over, or has no life of its own
	whole berth.Meter // the node's life up to until; not used when noLife
	since time.Time   // up to here its life has been rolled up
	until time.Time   // up to here it will be
	// noLife is set for nodes of which only tasks are known, such as the machine itself.
	noLife bool
	over   []entry // meters that end by then
	across []entry // tasks that go on: their rest is left
	final  bool    // nothing of the node is left
}

// plan decides what to roll up.
func (r *reader) plan(before time.Time) ([]step, error) {
	nodes, before, err := r.histories(before)
	if err != nil || len(nodes) == 0 {
		return nil, err
	}
	_, s, err := loadRolled(r.tx, r.workspace)
	if err != nil {
		return nil, err
	}
	live, err := r.live(r.tx.Now())
	if err != nil {
		return nil, err
	}
	lives, busy := map[string]berth.Meter{}, map[string]time.Time{}
	for _, m := range live {
		if m.Job == "" {
			lives[m.Node] = m
		} else if at, ok := busy[m.Node]; !ok || m.From.Before(at) {
			busy[m.Node] = m.From
		}
	}
	var out []step
	for name, h := range nodes {
		st := step{node: name, since: s.Nodes[name], until: before, life: h.life}
		switch m, isLive := lives[name]; {
		case isLive:
			st.whole = m
			if at, ok := busy[name]; ok && at.Before(st.until) {
				st.until = at
			}
		case h.life == nil:
			st.noLife = true
		default:
			st.whole = h.life.m
			st.final = !h.life.m.To.After(before)
		}
		if st.fill(h.tasks) {
			out = append(out, st)
		}
	}
	return out, nil
}

// nodeMeters is the meters of a node.
type nodeMeters struct {
	life  *entry
	tasks []entry
}

// histories is the meters that began before a time, by node. Where there are very many, the time
// is an earlier one.
func (r *reader) histories(before time.Time) (map[string]*nodeMeters, time.Time, error) {
	out := map[string]*nodeMeters{}
	var tasks []entry
	for q := (store.Query{Workspace: r.workspace, Kind: kindMeter, Asc: true}); ; {
		docs, err := r.tx.List(q)
		if err != nil {
			return nil, before, err
		}
		if len(docs) == 0 {
			break
		}
		q.After = docs[len(docs)-1].ID
		for _, d := range docs {
			m, err := r.meter(d)
			if err != nil {
				return nil, before, err
			}
			switch e := (entry{d.Name, m}); {
			case m.Job == "":
				out[m.Node] = &nodeMeters{life: &e}
			case m.From.Before(before):
				tasks = append(tasks, e)
			}
		}
		if len(tasks) > rollUpPlan {
			tasks, before = earlier(tasks, before)
		}
	}
	for _, e := range tasks {
		h := out[e.m.Node]
		if h == nil {
			h = &nodeMeters{}
			out[e.m.Node] = h
		}
		h.tasks = append(h.tasks, e)
	}
	return out, before, nil
}

// earlier is the half of the tasks that began first, and the time before which they did.
func earlier(tasks []entry, before time.Time) ([]entry, time.Time) {
	began := make([]time.Time, len(tasks))
	for i, e := range tasks {
		began[i] = e.m.From
	}
	slices.SortFunc(began, time.Time.Compare)
	if half := began[len(began)/2]; half.After(began[0]) {
		before = half
	}
	return slices.DeleteFunc(tasks, func(e entry) bool { return !e.m.From.Before(before) }), before
}

// fill takes the meters that are to be rolled up; false says that there are none.
func (st *step) fill(tasks []entry) bool {
	slices.SortFunc(tasks, func(a, b entry) int { return a.m.To.Compare(b.m.To) })
	for _, e := range tasks {
		if st.final || !e.m.To.After(st.until) {
			st.over = append(st.over, e)
		}
	}
	if n := rollUpBatch; len(st.over) > n {
		last := st.over[n-1].m.To
		for n < len(st.over) && st.over[n].m.To.Equal(last) {
			n++
		}
		if n < len(st.over) {
			st.over, st.final = st.over[:n:n], false
			if last.Before(st.until) {
				st.until = last
			}
		}
	}
	if st.final {
		st.until = st.life.m.To
		st.over = append(st.over, *st.life)
	} else if !st.noLife {
		for _, e := range tasks {
			if e.m.From.Before(st.until) && e.m.To.After(st.until) {
				st.across = append(st.across, e)
			}
		}
	}
	return len(st.over) > 0
}

// replace carries out steps. One whose meters have changed since it was planned is left out.
func (r *reader) replace(steps []step) (done int, err error) {
	// What is deleted must be in the ledgers of all budgets.
	accounts, err := Accounts(r.tx, r.workspace, r.local, r.tx.Now())
	if err != nil {
		return 0, err
	}
	for _, a := range accounts {
		if err := a.Save(r.tx); err != nil {
			return 0, err
		}
	}
	doc, s, err := loadRolled(r.tx, r.workspace)
	if err != nil {
		return 0, err
	}
	if s.Nodes == nil {
		s.Nodes = map[string]time.Time{}
	}
	sums := daySums{}
	for _, st := range steps {
		same, err := r.unchanged(st)
		if err != nil {
			return 0, err
		}
		if !same || !s.Nodes[st.node].Equal(st.since) {
			continue
		}
		st.sum(sums)
		if err := r.forget(st); err != nil {
			return 0, err
		}
		switch {
		case st.final:
			delete(s.Nodes, st.node)
		case !st.noLife:
			s.Nodes[st.node] = st.until
		}
		done += len(st.over)
	}
	if done == 0 {
		return 0, nil
	}
	for at := range sums {
		if s.First.IsZero() || at.Before(s.First) {
			s.First = at
		}
		if at.After(s.Last) {
			s.Last = at
		}
	}
	if err := sums.save(r.tx, r.workspace); err != nil {
		return 0, err
	}
	return done, s.save(r.tx, r.workspace, doc)
}

// unchanged says whether the meters of a step are as they were when it was planned: the clock may
// have been set meanwhile.
func (r *reader) unchanged(st step) (bool, error) {
	for _, e := range slices.Concat(st.over, st.across) {
		d, err := r.tx.Get(r.workspace, kindMeter, e.name, "")
		if berth.CodeOf(err) == berth.NotFound {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		m, err := r.meter(d)
		if err != nil || !m.From.Equal(e.m.From) || !m.To.Equal(e.m.To) {
			return false, err
		}
	}
	return true, nil
}

// sum adds the step's part of the node's time to the sums of its days.
func (st step) sum(sums daySums) {
	var meters []berth.Meter
	if !st.noLife {
		meters = append(meters, st.whole)
	}
	for _, e := range slices.Concat(st.over, st.across) {
		if e.m.Job != "" {
			meters = append(meters, e.m)
		}
	}
	var first, last time.Time
	for i, m := range meters {
		if i == 0 || m.From.Before(first) {
			first = m.From
		}
		if m.To.After(last) {
			last = m.To
		}
	}
	if first.Before(st.since) {
		first = st.since
	}
	if st.until.Before(last) {
		last = st.until
	}
	for at := dayOf(first); at.Before(last); at = at.Add(day) {
		w := Window{at, at.Add(day)}
		if w.Since.Before(first) {
			w.Since = first
		}
		if last.Before(w.Until) {
			w.Until = last
		}
		for _, n := range byNode(meters, w) {
			for p := range n.parts {
				sums.add(at, p)
			}
		}
	}
}

// forget deletes the meters of a step, and shortens those that go on.
func (r *reader) forget(st step) error {
	for _, e := range st.over {
		if err := r.tx.Delete(r.workspace, kindMeter, e.name, ""); err != nil {
			return err
		}
	}
	for _, e := range st.across {
		d, err := r.tx.Get(r.workspace, kindMeter, e.name, "")
		if err != nil {
			return err
		}
		m, err := store.State[berth.Meter](d)
		if err != nil {
			return err
		}
		m.From = st.until
		if err := store.SetState(d, m); err != nil {
			return err
		}
		if err := r.tx.Save(d); err != nil {
			return err
		}
	}
	return nil
}
