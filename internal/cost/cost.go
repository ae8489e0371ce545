// Package cost says what was spent and by which user, what jobs are likely to cost, and how much of
// a budget is left. Deciding is pure; meters, nodes and budgets are documents (store.go).
package cost

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Window is a stretch of time, its end excluded.
type Window struct{ Since, Until time.Time }

// clip is the part of a meter that lies within the window; ok is false when there is none.
func (w Window) clip(m berth.Meter) (berth.Meter, bool) {
	if m.From.Before(w.Since) {
		m.From = w.Since
	}
	if m.To.After(w.Until) {
		m.To = w.Until
	}
	return m, m.From.Before(m.To)
}

// Keys are what spending can be grouped by.
var Keys = []string{"user", "job", "compute", "size", "tier"}

// CheckKeys says which of the keys is none.
func CheckKeys(by []string) error {
	for i, k := range by {
		if !slices.Contains(Keys, k) {
			return berth.Errorf(berth.Invalid, "spending cannot be grouped by %q; it is %s, or several of them with commas between", k, strings.Join(Keys, ", "))
		}
		if slices.Contains(by[:i], k) {
			return berth.Errorf(berth.Invalid, "spending is grouped by %s twice", k)
		}
	}
	return nil
}

// Tally is what the meters within a window say, grouped by keys. Each node's life is split into
// what its tasks account for and the rest, which is idle unless the node is somebody's own. Of a
// task the part outside its node's life does not count.
//
// Groups add up to the totals, and two windows that meet add up to the one that they make together.
func Tally(meters []berth.Meter, by []string, w Window) berth.Spending {
	t := tally{by: by, groups: lines{}, totals: lines{}}
	t.meters(meters, w)
	return t.spending(w)
}

// tally is spending under construction.
type tally struct {
	by             []string
	groups, totals lines
}

func (t *tally) add(p part) {
	t.groups.add(p, t.by)
	t.totals.add(p, nil)
}

func (t *tally) meters(meters []berth.Meter, w Window) {
	for _, n := range byNode(meters, w) {
		for p := range n.parts {
			t.add(p)
		}
	}
}

func (t *tally) spending(w Window) berth.Spending {
	return berth.Spending{Since: w.Since, Until: w.Until, By: t.by, Groups: t.groups.sorted(), Totals: t.totals.sorted()}
}

// nodeTime is what is known of one node within a window.
type nodeTime struct {
	life  *berth.Meter // nil when it was not written down
	tasks []berth.Meter
}

// byNode collects meters by node, in the order in which nodes first appear.
func byNode(meters []berth.Meter, w Window) []*nodeTime {
	var out []*nodeTime
	nodes := map[string]*nodeTime{}
	for _, m := range meters {
		m, ok := w.clip(m)
		if !ok {
			continue
		}
		n := nodes[m.Node]
		if n == nil {
			n = &nodeTime{}
			nodes[m.Node] = n
			out = append(out, n)
		}
		if m.Job == "" {
			n.life = &m
		} else {
			n.tasks = append(n.tasks, m)
		}
	}
	return out
}

// part is a piece of a node's time.
type part struct {
	berth.Meter
	idle  bool
	hours float64 // of the node
	cost  float64
}

// parts gives out every piece of a node's time once.
func (n *nodeTime) parts(yield func(part) bool) {
	var edges []edge
	for _, t := range n.tasks {
		if n.life != nil {
			var ok bool
			if t, ok = (Window{n.life.From, n.life.To}).clip(t); !ok {
				continue
			}
		}
		edges = append(edges, edge{t.From, 1}, edge{t.To, -1})
		hours := t.To.Sub(t.From).Hours()
		if !yield(part{t, false, hours / float64(max(1, t.Slots)), t.Rate * hours}) {
			return
		}
	}
	if n.life == nil {
		return
	}
	if free := n.free(edges); free > 0 {
		yield(part{*n.life, !n.life.Instance, free, n.life.Rate * free})
	}
}

// edge is where a task begins or ends.
type edge struct {
	at time.Time
	by int
}

// free is the hours of a node's life that no task accounts for: at each moment the share of its
// slots that is free.
func (n *nodeTime) free(edges []edge) (hours float64) {
	slots := max(1, n.life.Slots)
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
	at, busy := n.life.From, 0
	count := func(to time.Time) {
		hours += to.Sub(at).Hours() * float64(max(0, slots-busy)) / float64(slots)
		at = to
	}
	for _, e := range edges {
		count(e.at)
		busy += e.by
	}
	count(n.life.To)
	return hours
}

// group is what tells one line from another.
type group struct{ user, job, compute, size, tier, currency string }

type lines map[group]*berth.CostLine

func (ls lines) add(p part, by []string) {
	g := group{currency: p.Currency}
	if !p.Priced {
		g.currency = ""
	}
	for _, k := range by {
		switch k {
		case "user":
			g.user = p.User
		case "job":
			g.job = p.Job
		case "compute":
			g.compute = p.Compute
		case "size":
			g.size = p.Size
		case "tier":
			g.tier = Tier(p.Low)
		}
	}
	l := ls[g]
	if l == nil {
		l = &berth.CostLine{User: g.user, Job: g.job, Compute: g.compute, Size: g.size, Tier: g.tier, Currency: g.currency}
		ls[g] = l
	}
	sum := &l.CostSum
	if p.idle {
		sum = &l.Idle
	}
	sum.NodeHours += p.hours
	if p.Priced {
		sum.Cost += p.cost
	} else {
		sum.Unknown += p.hours
	}
}

// Tier is the name of a tier, as computes write it.
func Tier(low bool) string {
	if low {
		return "low_priority"
	}
	return "dedicated"
}

// sorted is the lines, the dearest first. Hours without a price stand in a line of the same group
// that has one, so that a group has a line of its own for each currency only.
func (ls lines) sorted() []berth.CostLine {
	priced := map[group]string{} // the first currency of each group
	for g := range ls {
		bare := g
		bare.currency = ""
		if c, ok := priced[bare]; g.currency != "" && (!ok || g.currency < c) {
			priced[bare] = g.currency
		}
	}
	out := []berth.CostLine{}
	for g, l := range ls {
		c, ok := priced[g]
		if g.currency != "" || !ok {
			continue
		}
		g.currency = c
		into := ls[g]
		plus(&into.CostSum, l.CostSum)
		plus(&into.Idle, l.Idle)
	}
	for g, l := range ls {
		if _, ok := priced[g]; ok && g.currency == "" {
			continue
		}
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b berth.CostLine) int {
		return cmp.Or(
			cmp.Compare(b.Cost+b.Idle.Cost, a.Cost+a.Idle.Cost), cmp.Compare(b.NodeHours+b.Idle.NodeHours, a.NodeHours+a.Idle.NodeHours),
			strings.Compare(a.User, b.User), strings.Compare(a.Compute, b.Compute), strings.Compare(a.Job, b.Job),
			strings.Compare(a.Size, b.Size), strings.Compare(a.Tier, b.Tier), strings.Compare(a.Currency, b.Currency),
		)
	})
	return out
}

func plus(a *berth.CostSum, b berth.CostSum) {
	a.NodeHours += b.NodeHours
	a.Cost += b.Cost
	a.Unknown += b.Unknown
}
