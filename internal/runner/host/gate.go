package host

import (
	"os"
	"slices"
	"sync"
	"time"
)

// gate lets so many tasks run at once, in the order they came. A server may hand over more than can
// run, so that the next one begins without a journey to the server.
type gate struct {
	dir string // of the host, whose settings say how many

	mu     sync.Mutex
	looked time.Time // when the settings were last looked at
	read   time.Time // their time
	slots  int       // 0: no limit
	used   int
	line   []*ticket
}

// lookEvery is how often the settings are looked at, which every task gives occasion for.
const lookEvery = 100 * time.Millisecond

// ticket is a task's place, inside the gate or in the line before it.
type ticket struct {
	pass   chan struct{} // closed when it may run
	inside bool
	left   bool
	free   bool // it takes no place
}

// limit is how many may run now. The mutex is held.
func (g *gate) limit() int {
	now := time.Now()
	if now.Sub(g.looked) < lookEvery {
		return g.slots
	}
	g.looked = now
	info, err := os.Stat(settingsPath(g.dir))
	if err == nil && !info.ModTime().Equal(g.read) {
		if s, err := loadSettings(g.dir); err == nil {
			g.read, g.slots = info.ModTime(), s.Slots
		}
	}
	return g.slots
}

// enter takes a place. A task that runs already is let in whatever the limit.
func (g *gate) enter(runs bool) *ticket {
	t := &ticket{pass: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	limit := g.limit()
	if runs || limit == 0 || (g.used < limit && len(g.line) == 0) {
		g.admit(t)
	} else {
		g.line = append(g.line, t)
	}
	return t
}

func (g *gate) admit(t *ticket) {
	g.used++
	t.inside = true
	close(t.pass)
}

// free lets a task in that takes no place.
func (g *gate) free() *ticket {
	t := &ticket{pass: make(chan struct{}), inside: true, free: true}
	close(t.pass)
	return t
}

// leave gives a place back, the first time it is called for a ticket, and lets the next one in.
func (g *gate) leave(t *ticket) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.left {
		return
	}
	t.left = true
	if t.free {
		return
	}
	if t.inside {
		g.used--
	} else {
		g.line = slices.DeleteFunc(g.line, func(o *ticket) bool { return o == t })
	}
	for limit := g.limit(); len(g.line) > 0 && (limit == 0 || g.used < limit); {
		next := g.line[0]
		g.line = g.line[1:]
		g.admit(next)
	}
}

// crowded reports whether more wait in line than can begin within the next moment.
func (g *gate) crowded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.line) >= 4*max(g.slots, 1)
}

// waits reports whether the ticket's task has to wait.
func (t *ticket) waits() bool {
	select {
	case <-t.pass:
		return false
	default:
		return true
	}
}
