package sched_test

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth/internal/sched"
)

// TestScheduleLaws: never over capacity, gangs all or nothing on nodes of their own that are ready,
// in order, one answer for each gang that is due one, the same answers for the same question.
func TestScheduleLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawScenario(t)
		q := w.queue()
		out := sched.Schedule(w.pool, q, w.running, w.fresh, noon)
		if d := gocmp.Diff(out, w.schedule()); d != "" {
			t.Fatalf("another answer to the same question: %s", d)
		}
		var after []string
		for g := range q.All(nil) {
			after = append(after, g.ID)
		}
		if d := gocmp.Diff(inOrder(w.gangs, nil), after); d != "" {
			t.Fatalf("the queue has changed: %s", d)
		}
		answered := map[string]bool{}
		for _, c := range out {
			g, ok := w.gangs[c.Gang]
			if !ok || answered[c.Gang] || c.Why == "" {
				t.Fatalf("answer %+v", c)
			}
			answered[c.Gang] = true
			switch own := slices.Compact(slices.Sorted(slices.Values(c.Nodes))); {
			case len(c.Nodes) == 0:
			case len(own) != g.Nodes || len(c.Nodes) != g.Nodes:
				t.Fatalf("a gang of %d is placed on %v", g.Nodes, c.Nodes)
			case w.stuck(g):
				t.Fatalf("%+v was placed, which cannot run", g)
			}
		}
		for _, id := range w.fresh {
			if !answered[id] {
				t.Fatalf("no reason for %s", id)
			}
		}
		free := w.free(nil)
		for _, c := range out {
			for _, n := range c.Nodes {
				if f, ok := free[n]; !ok || f < 1 {
					t.Fatalf("%s has no free slot for %s", n, c.Gang)
				}
				free[n]--
			}
		}
		inTurn(t, w, out)
	})
}

// inTurn: until one cannot be placed, gangs go in order, each to the nodes that packing or
// spreading prefers; and the one that cannot be placed really cannot.
func inTurn(t *rapid.T, w scenario, out []sched.Choice) {
	share, left := maps.Clone(w.pool.Held), maps.Clone(w.gangs)
	maps.DeleteFunc(left, func(_ string, g sched.Gang) bool { return w.stuck(g) })
	before, at := w.split(out)
	for _, c := range out { // those that are passed over come with the others, in order
		if w.stuck(w.gangs[c.Gang]) && len(c.Nodes) > 0 {
			t.Fatalf("placed: %+v", c)
		}
	}
	next := func() sched.Gang {
		var first *sched.Gang
		for _, g := range left {
			if first == nil || goesFirst(g, *first, share) {
				first = &g
			}
		}
		if first == nil {
			return sched.Gang{}
		}
		return *first
	}
	done := []sched.Choice{}
	for _, c := range before {
		g := w.gangs[c.Gang]
		if w.stuck(g) {
			continue
		}
		if first := next(); first.ID != g.ID {
			t.Fatalf("%s was placed before %s", g.ID, first.ID)
		}
		if d := gocmp.Diff(w.preferred(done, g.Nodes), c.Nodes); d != "" {
			t.Fatalf("nodes of %s: %s", g.ID, d)
		}
		done = append(done, c)
		share[g.User] += g.Nodes
		delete(left, g.ID)
	}
	if at < 0 {
		if len(left) > 0 {
			t.Fatalf("nothing waits, but %v was not placed", left)
		}
		return
	}
	if g := w.gangs[out[at].Gang]; g.ID != next().ID {
		t.Fatalf("%s is the head before %s", g.ID, next().ID)
	} else if n := usable(w.free(done)); g.Nodes <= n {
		t.Fatalf("%s waits, which needs %d nodes of %d", g.ID, g.Nodes, n)
	}
}

// preferred is the nodes a gang of n should get: in use first, or last with spread; in their order
// among equals, which is that of the ranks too.
func (w scenario) preferred(done []sched.Choice, n int) []string {
	free := w.free(done)
	var names []string
	for _, node := range w.pool.Nodes {
		if free[node.Name] > 0 {
			names = append(names, node.Name)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int {
		if w.pool.Spread {
			a, b = b, a
		}
		return cmp.Compare(free[a], free[b])
	})
	names = names[:min(n, len(names))]
	slices.Sort(names)
	return names
}

// end is when a slot on each of some nodes becomes free, or a node comes.
type end struct {
	at   time.Time
	on   []string
	come int
}

// starts is when a gang of n could begin, given what is free now and what ends; the zero time is
// never.
func starts(free map[string]int, n int, ends []end) time.Time {
	free = maps.Clone(free)
	slices.SortStableFunc(ends, func(a, b end) int { return a.at.Compare(b.at) })
	come := 0
	for i, e := range ends {
		come += e.come
		for _, name := range e.on {
			if _, ok := free[name]; ok {
				free[name]++
			}
		}
		if (i+1 == len(ends) || ends[i+1].at.After(e.at)) && usable(free)+come >= n {
			return e.at
		}
	}
	return time.Time{}
}

// TestHeadIsNotDelayed: what is placed after the head does not make the head start later. Where the
// limits of what runs say when the head will start, that is held with everything running to its
// limit. Where they do not, whatever ends may end at any time.
func TestHeadIsNotDelayed(t *testing.T) {
	filled := 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawBlocked(t)
		if rarely(t, 4, "any scenario") {
			w = drawScenario(t)
		}
		out := w.schedule()
		before, at := w.split(out)
		if at < 0 {
			return
		}
		head := w.gangs[out[at].Gang]
		running := slices.Clone(w.running)
		for _, c := range before {
			running = append(running, sched.Running{Gang: w.gangs[c.Gang], On: c.Nodes, Since: noon})
		}
		// By limits, with all that is to come there at once.
		by := []end{{noon, nil, w.come()}}
		for _, r := range running {
			switch limit := r.Since.Add(r.Limit); {
			case r.Stopping || r.Limit > 0 && !limit.After(noon):
				by = append(by, end{noon, r.On, 0})
			case r.Limit > 0:
				by = append(by, end{limit, r.On, 0})
			}
		}
		promised := starts(w.free(before), head.Nodes, by)
		known := promised.After(noon) && len(out[at].Preempt) == 0
		minutes := rapid.IntRange(1, 300)
		anyTime := func() time.Time { return noon.Add(time.Duration(minutes.Draw(t, "minutes")) * time.Minute) }
		var ends []end
		for range w.come() {
			if rapid.Bool().Draw(t, "comes") {
				ends = append(ends, end{anyTime(), nil, 1})
			}
		}
		for _, r := range running {
			switch limit := r.Since.Add(r.Limit); {
			case known && !r.Stopping && r.Limit > 0 && limit.After(noon):
				ends = append(ends, end{limit, r.On, 0})
			case known && r.Limit == 0 && !r.Stopping:
			default:
				ends = append(ends, end{anyTime(), r.On, 0})
			}
		}
		without := starts(w.free(before), head.Nodes, slices.Clone(ends))
		for _, c := range out[at:] {
			if g := w.gangs[c.Gang]; len(c.Nodes) > 0 {
				filled++
				if g.Limit > 0 {
					ends = append(ends, end{noon.Add(g.Limit), c.Nodes, 0})
				}
			}
		}
		with := starts(w.free(out), head.Nodes, ends)
		if !without.IsZero() && (with.IsZero() || with.After(without)) {
			t.Fatalf("%s, promised for %v, would start at %v, with what was placed after it at %v\n%+v", head.ID, promised, without, with, out)
		}
	})
	if filled == 0 {
		t.Fatal("nothing was ever placed after a head")
	}
	t.Logf("%d gangs placed after a head", filled)
}

// TestPreemptionLaws: only gangs that may be stopped and have lower priority, only where it helps,
// none more than that takes, and always where it would help.
func TestPreemptionLaws(t *testing.T) {
	stopped := 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawCrowded(t)
		if rarely(t, 4, "any scenario") {
			w = drawScenario(t)
		}
		out := w.schedule()
		before, at := w.split(out)
		told := map[string]bool{}
		for i, c := range out {
			for _, id := range c.Preempt {
				k := slices.IndexFunc(w.running, func(r sched.Running) bool { return r.ID == id })
				switch g := w.gangs[c.Gang]; {
				case !w.pool.Preempt || len(c.Nodes) > 0 || i < at:
					t.Fatalf("stops %s: %+v", id, c)
				case k < 0 || told[id] || w.running[k].Stopping || !w.running[k].Spot || w.running[k].Priority >= g.Priority:
					t.Fatalf("%s may not be stopped for %+v", id, g)
				}
				told[id] = true
				stopped++
			}
		}
		if at < 0 {
			return
		}
		head, free := w.gangs[out[at].Gang], w.free(before)
		for _, r := range w.running {
			if r.Stopping {
				release(free, r)
			}
		}
		lack := head.Nodes - usable(free) - w.come()
		enough := func(which uint, candidates []sched.Running) bool {
			f := maps.Clone(free)
			for i, r := range candidates {
				if which>>i&1 == 1 {
					release(f, r)
				}
			}
			return usable(f)-usable(free) >= lack
		}
		var candidates []sched.Running
		chosen, fewest := uint(0), -1
		for _, r := range w.running {
			if r.Spot && !r.Stopping && r.Priority < head.Priority {
				if slices.Contains(out[at].Preempt, r.ID) {
					chosen |= 1 << len(candidates)
				}
				candidates = append(candidates, r)
			}
		}
		for which := range uint(1) << len(candidates) {
			if n := bits.OnesCount(which); enough(which, candidates) && (fewest < 0 || n < fewest) {
				fewest = n
			}
		}
		switch n := len(out[at].Preempt); {
		case !w.pool.Preempt || fewest < 0 || lack <= 0:
			if n > 0 {
				t.Fatalf("stops %v for nothing: %d nodes are missing", out[at].Preempt, lack)
			}
		case !enough(chosen, candidates):
			t.Fatalf("stops %v, which is not enough", out[at].Preempt)
		case w.pool.Nodes[0].Slots == 1 && n > fewest:
			t.Fatalf("stops %v, where %d would do", out[at].Preempt, fewest)
		default:
			for i, r := range candidates {
				if which := chosen &^ (1 << i); which != chosen && enough(which, candidates) {
					t.Fatalf("stops %v, and %s for nothing", out[at].Preempt, r.ID)
				}
				if n == 1 && enough(1<<i, candidates) && lesser(r, candidates[bits.TrailingZeros(chosen)]) {
					t.Fatalf("stops %v, where less is lost with %s", out[at].Preempt, r.ID)
				}
			}
		}
	})
	if stopped == 0 {
		t.Fatal("nothing was ever stopped")
	}
	t.Logf("%d gangs stopped", stopped)
}

func release(free map[string]int, r sched.Running) {
	for _, n := range r.On {
		if _, ok := free[n]; ok {
			free[n]++
		}
	}
}

// lesser is whether less is lost when a is stopped than when b is.
func lesser(a, b sched.Running) bool {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(len(a.On), len(b.On)), b.Since.Compare(a.Since)) < 0
}

// TestFairShare: of two users who both wait with equal jobs, neither holds more than one gang more
// than the other.
func TestFairShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 3).Draw(t, "size")
		w := scenario{gangs: map[string]sched.Gang{}, pool: sched.Pool{Name: "gpus", Nodes: nodes(9, 0), Max: 9, Held: map[string]int{}}}
		for i, user := range rapid.SliceOfN(rapid.SampledFrom([]string{"ada", "bob"}), 0, 20).Draw(t, "users") {
			id := string(rune('a' + i))
			w.gangs[id] = sched.Gang{ID: id, Nodes: size, User: user, Seq: int64(i)}
		}
		left := map[string]int{}
		for _, g := range w.gangs {
			left[g.User]++
		}
		for _, c := range w.schedule() {
			if len(c.Nodes) == 0 {
				continue
			}
			u := w.gangs[c.Gang].User
			w.pool.Held[u] += size
			left[u]--
			if d := w.pool.Held["ada"] - w.pool.Held["bob"]; left["ada"] > 0 && left["bob"] > 0 && max(d, -d) > size {
				t.Fatalf("%v while %v wait", w.pool.Held, left)
			}
		}
	})
}

// TestBars: no user is given more than the bar, whoever has none of it left keeps nobody else
// waiting, and says whose limit it is.
func TestBars(t *testing.T) {
	barred := 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawScenario(t)
		w.pool.Bars = map[string]sched.Bar{}
		users := w.queue().Users()
		slices.Sort(users)
		for _, user := range users {
			if rapid.Bool().Draw(t, "limited") {
				w.pool.Bars[user] = sched.Bar{Nodes: rapid.IntRange(0, 4).Draw(t, "bar"), Why: "the limit of " + user}
			}
		}
		out := w.schedule()
		given := map[string]int{}
		for _, c := range out {
			given[w.gangs[c.Gang].User] += len(c.Nodes)
		}
		for user, bar := range w.pool.Bars {
			if given[user] > bar.Nodes {
				t.Fatalf("%s was given %d nodes of %d", user, given[user], bar.Nodes)
			}
		}
		for _, c := range out {
			g := w.gangs[c.Gang]
			bar, limited := w.pool.Bars[g.User]
			if len(c.Nodes) > 0 || !limited || g.Nodes <= bar.Nodes || w.pool.Down != "" {
				continue
			}
			if barred++; len(c.Preempt) > 0 || c.Why == "" {
				t.Fatalf("%s may not run: %+v", g.ID, c)
			}
		}
		sizes, _ := w.queue().SizesWithin(w.pool.Held, w.pool.Bars)
		for nodes, n := range sizes {
			if n > w.queue().Sizes()[nodes] {
				t.Fatalf("%d gangs of %d nodes: %v", n, nodes, w.queue().Sizes())
			}
		}
	})
	if barred == 0 {
		t.Error("nobody was barred")
	}
}
