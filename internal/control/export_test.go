package control

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/overlay"
	"github.com/berthml/berth/internal/picture"
	"github.com/berthml/berth/internal/scale"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/store"
)

// CheckState fails t when a try at a cycle changes the state: only apply may. With fail the first
// try at each cycle, and at each task that is taken up, fails after it has done everything, as if
// its commit had.
func (c *Control) CheckState(t testing.TB, fail bool) {
	first := true
	c.probe = func(_ berth.TaskID, outcome *error) func() {
		before := c.state.String()
		return func() {
			if after := c.state.String(); after != before {
				t.Errorf("a cycle changed the state:\n%s", difference(before, after))
			}
			if first = !first; fail && !first && *outcome == nil {
				*outcome = berth.Errorf(berth.Unavailable, "the commit failed")
			}
		}
	}
}

// FailTakeUp makes each try to take up a task fail for which on says so, as if the database were
// away.
func (c *Control) FailTakeUp(on func(berth.TaskID) bool) {
	c.probe = func(takenUp berth.TaskID, outcome *error) func() {
		return func() {
			if takenUp != "" && *outcome == nil && on(takenUp) {
				*outcome = berth.Errorf(berth.Unavailable, "the commit failed")
			}
		}
	}
}

// EndTask records an end that no runner reports.
func (c *Control) EndTask(ctx context.Context, id berth.TaskID, e berth.Exit) { c.endTask(ctx, id, &e) }

// String is everything the state says.
func (s *state) String() string {
	var b strings.Builder
	for k, p := range sorted(&s.pools) {
		fmt.Fprintf(&b, "%v %s %+v %+v held %v local %v stored %s bounds %+v barred %v wake %v %+v\n",
			k, p.name, p.spec, p.state, p.held, p.localTasks, p.stored, p.lastBounds, p.barred, p.wake, p.memory)
		for _, n := range p.nodes {
			fmt.Fprintf(&b, "  node %+v\n", *n)
		}
		for g := range p.queue.All(nil) {
			fmt.Fprintf(&b, "  waits %+v\n", g)
		}
		fmt.Fprintf(&b, "  %d wait: %v, sizes %v\n", p.queue.Len(), slices.Sorted(p.queue.IDs()), p.queue.Sizes())
		for id, r := range sorted(&p.running) {
			fmt.Fprintf(&b, "  runs %s %+v\n", id, r)
		}
	}
	for id, g := range sorted(&s.gangs) {
		fmt.Fprintf(&b, "gang %s %+v\n", id, *g)
	}
	for workspace, budgets := range sorted(&s.exhausted) {
		fmt.Fprintf(&b, "exhausted %s %+v\n", workspace, budgets)
	}
	for _, id := range slices.Sorted(maps.Keys(s.placed)) {
		fmt.Fprintf(&b, "placed %s %p\n", id, s.placed[id])
	}
	fmt.Fprintf(&b, "%+v %d %v %v\n", s.personal, s.lastNodeID, s.shifted, s.problems)
	return b.String()
}

// sorted is a map in an order that stays.
func sorted[K comparable, V any](m *overlay.Map[K, V]) func(yield func(K, V) bool) {
	keys := slices.SortedFunc(m.Keys(), func(a, b K) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return func(yield func(K, V) bool) {
		for _, k := range keys {
			if v, _ := m.Get(k); !yield(k, v) {
				return
			}
		}
	}
}

// difference is the lines of two texts that are not the same.
func difference(before, after string) string {
	was, is := strings.Split(before, "\n"), strings.Split(after, "\n")
	var out []string
	for _, l := range was {
		if !slices.Contains(is, l) {
			out = append(out, "- "+l)
		}
	}
	for _, l := range is {
		if !slices.Contains(was, l) {
			out = append(out, "+ "+l)
		}
	}
	return strings.Join(out, "\n")
}

// PicturesDiffer says how the pools that the loop decides by differ from those that plans and
// explanations read from the store; "" when they do not. The loop must have nothing to do.
func (c *Control) PicturesDiffer(ctx context.Context, workspace string) (diff string, err error) {
	err = c.o.DB.View(ctx, func(tx *store.Tx) error {
		diff = ""
		cy := &cycle{c: c, tx: tx, now: tx.Now(), state: c.state.newFork()}
		for k, p := range sorted(&cy.state.pools) {
			r := picture.Reader{
				Tx: tx, Workspace: workspace, Now: cy.now, Terms: c.o.Local, Slots: c.o.Local.Slots, Machine: c.o.Machine, QuotaDefault: c.o.QuotaDefault,
			}
			read, err := r.Local()
			if k.workspace != "" {
				var d *store.Doc
				if d, err = tx.Get(k.workspace, "computes", k.compute, ""); err == nil {
					read, err = r.Pool(d)
				}
			}
			if err == nil {
				err = r.Bar(&read, "")
			}
			if err != nil {
				return err
			}
			delete(read.Bars, "") // nobody
			read.Short = read.State.Short
			v, err := cy.picture(p)
			if err != nil {
				return err
			}
			diff += cmpPictures(p, v, read, cy.now)
		}
		return nil
	})
	return diff, err
}

// cmpPictures compares what the loop and a reader tell the scheduler and the autoscaler of a pool,
// and what these decide.
func cmpPictures(p *pool, v picture.Pool, read picture.Read, now time.Time) string {
	var queue sched.Queue
	for _, g := range read.Waiting {
		queue.Add(g)
	}
	ids := slices.Sorted(queue.IDs())
	if len(ids) == 0 || p.single() {
		read.Running = nil // as the loop leaves out
	}
	var own, theirs []any
	own = append(own, v.Sched(), p.gangs(), slices.Sorted(p.queue.IDs()), sched.Schedule(v.Sched(), &p.queue, p.gangs(), ids, now))
	theirs = append(theirs, read.Sched(), read.Running, ids, sched.Schedule(read.Sched(), &queue, read.Running, ids, now))
	if v.Scales() {
		own = append(own, v.Scale(&p.queue), scale.Decide(v.Scale(&p.queue), now))
		theirs = append(theirs, read.Scale(&queue), scale.Decide(read.Scale(&queue), now))
	}
	if diff := gocmp.Diff(own, theirs, cmpopts.EquateEmpty()); diff != "" {
		return fmt.Sprintf("%s: the loop (-) and the reader (+):\n%s", p.name, diff)
	}
	return ""
}
