package sched

import (
	"cmp"
	"iter"
	"strings"
)

// cursor walks a queue in order. What a user is given on the way counts as held.
type cursor struct {
	held  map[string]int
	given map[string]int // in levels that are behind; nil while there is only one
	rest  []*level
	lanes []lane // a heap: the next gang's lane is first
	moved bool   // lanes[0] has been looked at
}

// lane is the cursor's place in a line.
type lane struct {
	user  string
	share int // nodes the user holds
	gangs []*Gang
}

func (a *lane) less(b *lane) bool {
	return cmp.Or(cmp.Compare(a.share, b.share), cmp.Compare(a.gangs[0].Seq, b.gangs[0].Seq), strings.Compare(a.gangs[0].ID, b.gangs[0].ID)) < 0
}

func (q *Queue) cursor(held map[string]int) cursor {
	c := cursor{held: held, rest: q.levels}
	if len(q.levels) > 1 {
		c.given = map[string]int{}
	}
	return c
}

// next is the gang after those seen so far; nil at the end. took must be called before it for a
// gang that was placed.
func (c *cursor) next() *Gang {
	if c.moved {
		c.moved = false
		if l := &c.lanes[0]; len(l.gangs) > 1 {
			l.gangs = l.gangs[1:]
		} else {
			last := len(c.lanes) - 1
			c.lanes[0] = c.lanes[last]
			c.lanes = c.lanes[:last]
		}
		c.sift(0)
	}
	if len(c.lanes) == 0 {
		if len(c.rest) == 0 {
			return nil
		}
		c.enter(c.rest[0])
		c.rest = c.rest[1:]
	}
	c.moved = true
	return c.lanes[0].gangs[0]
}

// took notes that the gang next returned last was given its nodes.
func (c *cursor) took() {
	l := &c.lanes[0]
	l.share += l.gangs[0].Nodes
	if c.given != nil {
		c.given[l.user] += l.gangs[0].Nodes
	}
}

func (c *cursor) enter(l *level) {
	if cap(c.lanes) < len(l.lines) {
		c.lanes = make([]lane, 0, len(l.lines))
	}
	for _, u := range l.lines {
		c.lanes = append(c.lanes, lane{user: u.user, share: c.held[u.user] + c.given[u.user], gangs: u.gangs()})
	}
	for i := len(c.lanes)/2 - 1; i >= 0; i-- {
		c.sift(i)
	}
}

func (c *cursor) sift(i int) {
	for {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(c.lanes); k++ {
			if c.lanes[k].less(&c.lanes[least]) {
				least = k
			}
		}
		if least == i {
			return
		}
		c.lanes[i], c.lanes[least] = c.lanes[least], c.lanes[i]
		i = least
	}
}

// All is every gang in the order in which they would go if each could be placed when its turn
// comes. held is how many nodes each user holds now. The queue must not change meanwhile.
func (q *Queue) All(held map[string]int) iter.Seq[Gang] {
	return func(yield func(Gang) bool) {
		for c := q.cursor(held); ; c.took() {
			g := c.next()
			if g == nil || !yield(*g) {
				return
			}
		}
	}
}

// AheadOf is how many gangs go before this one. held is how many nodes each user holds now. An
// unknown ID has none before it.
func (q *Queue) AheadOf(id string, held map[string]int) (gangs int) {
	g, ok := q.gangs.Get(id)
	if !ok {
		return 0
	}
	at, _ := q.level(g.Priority)
	share := map[string]int{}
	for _, l := range q.levels[:at] {
		gangs += l.gangs
		for _, u := range l.lines {
			share[u.user] += u.nodes
		}
	}
	// Within a level the order is by what the user holds when its turn comes, then by Seq.
	mine := held[g.User] + share[g.User]
	for _, h := range q.levels[at].users[g.User].gangs() {
		if h == g {
			break
		}
		gangs++
		mine += h.Nodes
	}
	for _, u := range q.levels[at].lines {
		if u.user == g.User {
			continue
		}
		theirs := held[u.user] + share[u.user]
		for _, h := range u.gangs() {
			if theirs > mine || theirs == mine && h.before(g) > 0 {
				break
			}
			gangs++
			theirs += h.Nodes
		}
	}
	return gangs
}
