package scale

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Decide says which nodes to ask for and which to give back.
//
// There should be enough nodes for all waiting tasks at once, within Min, Max and Room. Idle nodes,
// starting ones and free slots of busy ones count first. A gang that could not run even with all
// the nodes that may be had makes none start.
//
// A node is given back when it has been idle for Idle and neither Min nor a waiting task needs it,
// the one that has been idle longest first. One that nobody pays for any more goes before those,
// and at once. A busy node never is, whatever the clock says. A starting node that nobody needs any
// more is named, and given back when that has been so for Idle: work that comes and goes must not
// make nodes come and go, and a provider may take for ever to make one. With an idle time of 0 it
// goes as soon as nothing waits. Above Max, idle and starting nodes go at once.
func Decide(p Pool, now time.Time) Decision {
	s := survey(p)
	if p.Hold != "" {
		return s.hold(p)
	}
	var d Decision
	s.over(p, &d)
	room := min(max(0, p.Room), max(0, p.Max)) // more is of no use, and could not be added up
	w := demandOf(p, min(p.Max, s.alive+room))
	full := max(s.alive+s.lack(w.all), min(p.Min, p.Max))
	want := max(s.alive+s.lack(w.reach), min(p.Min, p.Max))
	d.Add = max(0, min(want, p.Max, s.alive+room)-s.alive)
	switch {
	case d.Add > 0 && now.Before(p.Wait):
		d.Add, d.Wake = 0, p.Wait
		d.Short = fmt.Sprintf("the last attempt to add a node failed, the next is at %s UTC", p.Wait.UTC().Format(time.TimeOnly))
	case full <= s.alive+d.Add:
	case s.alive+room < p.Max:
		d.Short = cmp.Or(p.Bound, "no more nodes may be asked for now")
	default:
		d.Short = fmt.Sprintf("%s can have at most %s", p.Name, nodes(p.Max))
	}
	if d.Add > 0 {
		s.because = append(s.because, w.reach.why(p, s))
	} else {
		s.shrink(p, now, &d, w)
	}
	d.Target = s.alive + d.Add
	if len(s.because) > 0 {
		d.Why = fmt.Sprintf("%s: %d -> %s", strings.Join(s.because, ", and "), s.had, nodes(d.Target))
	}
	return d
}

// state is a pool counted.
type state struct {
	had            int // nodes
	alive          int // of them, once those in Decision.Remove are gone
	idle, starting []Node
	// spots is how many busy nodes have a free slot, free how many slots that is.
	spots, free int
	slots       int
	because     []string
}

func survey(p Pool) *state {
	s := &state{slots: max(1, p.Slots)}
	for _, n := range p.Nodes {
		switch {
		case n.Evicted:
			continue
		case n.Busy > 0:
			if n.Busy < s.slots {
				s.spots++
				s.free += s.slots - n.Busy
			}
		case n.Starting:
			s.starting = append(s.starting, n)
		default:
			s.idle = append(s.idle, n)
		}
		s.had++
	}
	s.alive = s.had
	// Those that nobody pays for first, then the longest idle, and in the order given among equals.
	slices.SortStableFunc(s.idle, func(a, b Node) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Since.Compare(b.Since))
	})
	return s
}

func rank(n Node) int {
	if n.Unpaid != "" {
		return 0
	}
	return 1
}

// hold gives back everything without work.
func (s *state) hold(p Pool) Decision {
	var d Decision
	for _, n := range slices.Concat(s.idle, s.starting) {
		d.Remove = append(d.Remove, n.Name)
	}
	d.Target = s.had - len(d.Remove)
	if len(d.Remove) > 0 {
		d.Why = fmt.Sprintf("%s: %d -> %s", p.Hold, s.had, nodes(d.Target))
	}
	if w := demandOf(p, p.Max); w.all.tasks > 0 {
		d.Short = p.Hold
	}
	return d
}

// over gives back what is above Max: nodes that are not there yet first, the last asked for before
// the others.
func (s *state) over(p Pool, d *Decision) {
	n := min(s.alive-p.Max, len(s.idle)+len(s.starting))
	if n <= 0 {
		return
	}
	for range n {
		if last := len(s.starting) - 1; last >= 0 {
			d.Remove = append(d.Remove, s.starting[last].Name)
			s.starting = s.starting[:last]
		} else {
			d.Remove = append(d.Remove, s.idle[0].Name)
			s.idle = s.idle[1:]
		}
	}
	s.alive -= n
	s.because = append(s.because, fmt.Sprintf("%s can have at most %s", p.Name, nodes(p.Max)))
}

// shrink gives back what has been idle for too long and is not needed. Nodes that are there serve
// first, so that none of them goes while a task or Min counts on one that may yet fail to start.
func (s *state) shrink(p Pool, now time.Time, d *Decision, w waiting) {
	idle, least := max(0, p.Idle), min(p.Min, p.Max)
	need := s.lack(w.reach) + len(s.idle) + len(s.starting)
	spare := min(len(s.idle)-need, s.alive-len(s.starting)-least)
	n, odd, unpaid := 0, 0, 0
	var next time.Time
	for _, node := range s.idle {
		switch at := node.Since.Add(idle); {
		case n < spare && node.Unpaid != "":
			d.Remove = append(d.Remove, node.Name)
			n++
			unpaid++
		case n < spare && expired(node, idle, now):
			d.Remove = append(d.Remove, node.Name)
			n++
			if node.Since.After(now) {
				odd++
			}
		case at.After(now) && (next.IsZero() || at.Before(next)):
			next = at
		}
	}
	if unpaid > 0 {
		s.because = append(s.because, fmt.Sprintf("%s idle, and %s", nodes(unpaid), s.idle[0].Unpaid))
	}
	if late := n - odd - unpaid; late > 0 {
		s.because = append(s.because, tooLong(late, idle))
	}
	if odd > 0 {
		s.because = append(s.because, fmt.Sprintf("%s idle for an unknown time, the clock was set back", nodes(odd)))
	}
	if n < spare && !next.IsZero() && (d.Wake.IsZero() || next.Before(d.Wake)) {
		d.Wake = next
	}
	s.alive -= n
	if idle > 0 {
		s.unneeded(now, idle, d, min(len(s.starting)-max(0, need-len(s.idle)), s.alive-least))
		return
	}
	if n = min(s.alive-least, len(s.starting)); n > 0 && w.all.tasks == 0 {
		for _, node := range s.starting[len(s.starting)-n:] {
			d.Remove = append(d.Remove, node.Name)
		}
		s.because = append(s.because, fmt.Sprintf("nothing waits for %s that had not started yet", nodes(n)))
		s.alive -= n
	}
}

// unneeded names so many starting nodes, the last asked for, and gives back those that nobody has
// needed for too long. Where it is not known since when, it is so from now on.
func (s *state) unneeded(now time.Time, idle time.Duration, d *Decision, n int) {
	gone := 0
	for _, node := range s.starting[len(s.starting)-max(0, n):] {
		d.Unneeded = append(d.Unneeded, node.Name)
		if node.Since.IsZero() {
			node.Since = now
		}
		switch at := node.Since.Add(idle); {
		case expired(node, idle, now):
			d.Remove = append(d.Remove, node.Name)
			gone++
		case d.Wake.IsZero() || at.Before(d.Wake):
			d.Wake = at
		}
	}
	if gone > 0 {
		s.alive -= gone
		s.because = append(s.because, fmt.Sprintf("nothing has waited for %s, not started yet, for %s", nodes(gone), idle))
	}
}

// expired is whether a node has been idle for too long. One that has been so since a time that is
// yet to come was not: the clock was set back, and when by more than the idle time, nobody knows
// how long it has been idle.
func expired(n Node, idle time.Duration, now time.Time) bool {
	since := now.Sub(n.Since)
	return since >= idle || since < -idle
}

func tooLong(n int, idle time.Duration) string {
	if idle == 0 {
		return fmt.Sprintf("%s idle, and the cluster keeps none idle", nodes(n))
	}
	return fmt.Sprintf("%s idle for %s, the cluster's limit", nodes(n), idle)
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}
