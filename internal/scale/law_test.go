package scale_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth/internal/scale"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// drawPool makes a pool in any state, also ones that the limits of today would not have let come
// about.
func drawPool(t *rapid.T) scale.Pool {
	p := scale.Pool{
		Name: "gpus", Min: rapid.IntRange(0, 3).Draw(t, "min"), Slots: rapid.IntRange(1, 3).Draw(t, "slots"),
		Idle: time.Duration(rapid.SampledFrom([]int{0, 1, 120, 600}).Draw(t, "idle")) * time.Second,
		Room: rapid.IntRange(-1, 8).Draw(t, "room"), Bound: rapid.SampledFrom([]string{"", "the quota of ada is used up"}).Draw(t, "bound"),
	}
	p.Max = p.Min + rapid.IntRange(0, 6).Draw(t, "more")
	for i := range rapid.IntRange(0, 8).Draw(t, "nodes") {
		n := scale.Node{Name: fmt.Sprint("n", i)}
		switch rapid.IntRange(0, 9).Draw(t, "state") {
		case 0, 1, 2:
			n.Busy = rapid.IntRange(1, p.Slots).Draw(t, "busy")
			n.Since = noon.Add(-24 * time.Hour) // of no meaning
		case 3, 4:
			n.Starting = true
			if s := rapid.IntRange(-100, 900).Draw(t, "unneeded since"); s > 0 {
				n.Since = noon.Add(-time.Duration(s) * time.Second)
			}
		case 5:
			n.Evicted, n.Busy = true, rapid.IntRange(0, p.Slots).Draw(t, "lost")
		case 6: // the clock was set back
			n.Since = noon.Add(time.Duration(rapid.IntRange(1, 2000).Draw(t, "to come")) * time.Second)
		default:
			n.Since = noon.Add(-time.Duration(rapid.IntRange(0, 900).Draw(t, "since")) * time.Second)
		}
		if rapid.IntRange(0, 4).Draw(t, "paid") == 0 {
			n.Unpaid = "the budget of ada is used up"
		}
		p.Nodes = append(p.Nodes, n)
	}
	p.Sizes = map[int]int{}
	for _, n := range rapid.SliceOfN(rapid.IntRange(1, 6), 0, 6).Draw(t, "gangs") {
		p.Sizes[n]++
	}
	if rapid.IntRange(0, 9).Draw(t, "hold") == 9 {
		p.Hold = "gpus is being deleted"
	}
	if rapid.IntRange(0, 4).Draw(t, "failed") == 4 {
		p.Wait = noon.Add(time.Duration(rapid.IntRange(-10, 10).Draw(t, "wait")) * time.Second)
	}
	return p
}

func alive(p scale.Pool) (n int) {
	for _, node := range p.Nodes {
		if !node.Evicted {
			n++
		}
	}
	return n
}

// waits is the tasks and the largest gang among those of at most max nodes.
func waits(p scale.Pool, most int) (tasks, largest int) {
	for nodes, gangs := range p.Sizes {
		if nodes <= min(most, p.Max) {
			tasks, largest = tasks+nodes*gangs, max(largest, nodes)
		}
	}
	return tasks, largest
}

// room is the free slots of nodes that are not evicted, and how many nodes have one.
func room(p scale.Pool) (slots, nodes int) {
	for _, n := range p.Nodes {
		if !n.Evicted && n.Busy < p.Slots {
			slots, nodes = slots+p.Slots-n.Busy, nodes+1
		}
	}
	return slots, nodes
}

func apply(p scale.Pool, d scale.Decision) scale.Pool {
	p.Nodes = slices.DeleteFunc(slices.Clone(p.Nodes), func(n scale.Node) bool { return slices.Contains(d.Remove, n.Name) })
	for i := range d.Add {
		p.Nodes = append(p.Nodes, scale.Node{Name: fmt.Sprint("new", i), Starting: true})
	}
	p.Room -= d.Add
	return p
}

// TestLaws: within the limits, nothing busy is removed, nothing comes and goes at once, once is
// enough, and every change has a reason.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPool(t)
		d := scale.Decide(p, noon)
		if e := scale.Decide(p, noon); !cmp.Equal(d, e) {
			t.Fatalf("%+v, then %+v", d, e)
		}
		n := alive(p)
		after := apply(p, d)
		if e := scale.Decide(after, noon); e.Add > 0 || len(e.Remove) > 0 || e.Target != d.Target || e.Short != d.Short {
			t.Fatalf("%+v, and then again %+v", d, e)
		}
		switch changes := d.Add > 0 || len(d.Remove) > 0; {
		case d.Add < 0 || d.Target != n+d.Add-len(d.Remove):
			t.Fatalf("%d nodes: %+v", n, d)
		case d.Add > 0 && (n+d.Add > p.Max || d.Add > p.Room || p.Hold != "" || noon.Before(p.Wait) || len(d.Remove) > 0):
			t.Fatalf("grows: %+v", d)
		case changes != (d.Why != ""):
			t.Fatalf("why: %+v", d)
		case !d.Wake.IsZero() && !d.Wake.After(noon):
			t.Fatalf("wakes at once: %+v", d)
		}
		removed := map[string]bool{}
		wanted, _ := waits(p, min(p.Max, alive(p)+max(0, p.Room)))
		for _, name := range d.Remove {
			i := slices.IndexFunc(p.Nodes, func(n scale.Node) bool { return n.Name == name })
			if removed[name] || i < 0 || p.Nodes[i].Busy > 0 || p.Nodes[i].Evicted {
				t.Fatalf("removes %s: %+v", name, d)
			}
			removed[name] = true
			node := p.Nodes[i]
			idle := noon.Sub(node.Since)
			tooLong := !node.Starting && (node.Unpaid != "" || idle >= p.Idle || idle < -p.Idle)
			unwanted := node.Starting && (p.Idle == 0 && wanted == 0 || p.Idle > 0 && !node.Since.IsZero() && idle >= p.Idle && slices.Contains(d.Unneeded, name))
			if !tooLong && !unwanted && p.Hold == "" && n <= p.Max {
				t.Fatalf("removes %+v after %v", node, idle)
			}
		}
		if p.Hold != "" {
			for _, node := range after.Nodes {
				if !node.Evicted && node.Busy == 0 {
					t.Fatalf("holds and keeps %+v", node)
				}
			}
			return
		}
		if n > p.Max && d.Target > p.Max && slices.ContainsFunc(after.Nodes, func(n scale.Node) bool { return !n.Evicted && n.Busy == 0 }) {
			t.Fatalf("stays above the most: %+v", d)
		}
		if n <= p.Max {
			oldestFirst(t, p, after, d)
		}
		enough(t, p, after, d)
	})
}

// oldestFirst: of the nodes that have been idle for too long those go that have been so longest,
// and only such that neither the least number of nodes nor a waiting task has to count on nodes
// that are still starting.
func oldestFirst(t *rapid.T, p, after scale.Pool, d scale.Decision) {
	ready := scale.Pool{Slots: p.Slots}
	for _, n := range after.Nodes {
		if !n.Evicted && !n.Starting {
			ready.Nodes = append(ready.Nodes, n)
		}
	}
	tasks, largest := waits(p, min(p.Max, alive(p)+max(0, p.Room)))
	for _, gone := range p.Nodes {
		if gone.Starting || !slices.Contains(d.Remove, gone.Name) {
			continue
		}
		if s, n := room(ready); s < tasks || n < largest || len(ready.Nodes) < p.Min {
			t.Fatalf("removes %+v, which is needed: %+v", gone, d)
		}
		for _, n := range ready.Nodes {
			if n.Busy == 0 && (gone.Unpaid == "" && n.Unpaid != "") {
				t.Fatalf("removes %+v, which is paid for, before %+v", gone, n)
			}
			if n.Busy == 0 && (gone.Unpaid != "") == (n.Unpaid != "") && n.Since.Before(gone.Since) && !n.Since.Add(p.Idle).After(noon) {
				t.Fatalf("removes %+v before %+v", gone, n)
			}
		}
	}
}

// enough: there are nodes for all that waits, or it is said why not; and none beyond that has been
// idle for too long.
func enough(t *rapid.T, p, after scale.Pool, d scale.Decision) {
	before := alive(p)
	least := min(p.Min, p.Max)
	if d.Target < least && d.Target < before {
		t.Fatalf("falls below the least: %+v", d)
	}
	tasks, largest := waits(p, p.Max)
	slots, nodes := room(after)
	if (tasks > slots || largest > nodes || d.Target < least) != (d.Short != "") {
		t.Fatalf("%d tasks wait, largest %d, for %d slots on %d nodes: %+v", tasks, largest, slots, nodes, d)
	}
	// More than what waits could need: only what was there, and what Min wants.
	tasks, largest = waits(p, min(p.Max, before+max(0, p.Room)))
	if less := apply(p, scale.Decision{Add: d.Add - 1}); d.Add > 0 && d.Target > least {
		if s, n := room(less); s >= tasks && n >= largest {
			t.Fatalf("asks for more than it needs: %+v", d)
		}
	}
	if without := apply(after, scale.Decision{Remove: d.Unneeded}); len(d.Unneeded) > 0 {
		if s, n := room(without); s < tasks || n < largest || alive(without) < least {
			t.Fatalf("somebody needs one of %v: %+v", d.Unneeded, d)
		}
	}
	if tasks == 0 && d.Target > max(before, least) {
		t.Fatalf("grows for gangs that cannot run: %+v", d)
	}
	if tasks > slots || largest > nodes {
		return
	}
	starting := 0
	for _, n := range after.Nodes {
		if n.Starting && !n.Evicted {
			starting++
		}
	}
	for _, n := range after.Nodes {
		idle := noon.Sub(n.Since)
		if n.Busy > 0 || n.Evicted || n.Starting || n.Unpaid == "" && idle < p.Idle && idle >= -p.Idle || d.Target-starting <= least {
			continue
		}
		without := apply(after, scale.Decision{Remove: []string{n.Name}})
		for i := range without.Nodes { // what starts may fail to
			without.Nodes[i].Evicted = without.Nodes[i].Evicted || without.Nodes[i].Starting
		}
		if s, k := room(without); s >= tasks && k >= largest {
			t.Fatalf("keeps %+v for nothing: %+v", n, d)
		}
	}
}

// TestWake: it asks to be asked again when the next node has been idle for too long, not before and
// not after.
func TestWake(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPool(t)
		d := scale.Decide(p, noon)
		p = apply(p, d)
		for i := range p.Nodes { // as the caller notes it
			if n := &p.Nodes[i]; n.Starting && n.Since.IsZero() && slices.Contains(d.Unneeded, n.Name) {
				n.Since = noon
			}
		}
		wake := d.Wake
		if wake.IsZero() {
			wake = noon.Add(1000 * time.Hour)
		}
		if e := scale.Decide(p, wake.Add(-time.Nanosecond)); e.Add > 0 || len(e.Remove) > 0 {
			t.Fatalf("nothing to do before %v, but then %+v", d.Wake, e)
		}
		if d.Wake.IsZero() {
			return
		}
		if e := scale.Decide(p, wake); e.Add == 0 && len(e.Remove) == 0 {
			t.Fatalf("woke for nothing at %v: %+v", d.Wake, e)
		}
	})
}
