package track

import (
	"sync"

	"github.com/berthml/berth"
)

// removals are what is gone from an index, so that a late word of an earlier change does not bring
// it back. They are kept until each change has ended that had begun by then.
type removals struct {
	mu         sync.Mutex
	last, past map[string]berth.Rev // since the turn, and before it
	begun      int                  // changes under way since the turn
	left       int                  // and those that began before it
	turn       int
}

// begin is called before a change reads, and end when the index has what became of it.
func (m *removals) begin() (end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun++
	turn := m.turn
	return func() { m.end(turn) }
}

func (m *removals) end(turn int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if turn == m.turn {
		m.begun--
	} else {
		m.left--
	}
	for m.left == 0 && len(m.last)+len(m.past) > 0 {
		m.past, m.last = m.last, nil
		m.left, m.begun = m.begun, 0
		m.turn++
	}
}

func (m *removals) add(id string, rev berth.Rev) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last = map[string]berth.Rev{}
	}
	m.last[id] = rev
}

// of is when something was removed, 0 if that is not known.
func (m *removals) of(id string) berth.Rev {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.last[id], m.past[id])
}
