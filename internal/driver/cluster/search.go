//go:build !windows

package cluster

import (
	"sync"

	"github.com/berthml/berth/internal/runner"
)

// search looks for the processes of nodes. Reading all of a machine's processes takes a while, so
// those who ask while somebody looks share the next look.
type search struct {
	looking sync.Mutex // held by who looks

	mu   sync.Mutex
	next *look // which has not begun; nil when nobody asked for it
}

type look struct {
	dirs  []string
	done  bool
	found map[string][]int
}

// find lists the processes of the node of a directory, as they are after the call.
func (s *search) find(dir string) []int {
	s.mu.Lock()
	if s.next == nil {
		s.next = new(look)
	}
	l := s.next
	l.dirs = append(l.dirs, dir)
	s.mu.Unlock()

	s.looking.Lock()
	defer s.looking.Unlock()
	if !l.done { // the first to come here looks for all who asked until now
		s.mu.Lock()
		s.next = nil
		s.mu.Unlock()
		l.found, l.done = runner.Belonging(l.dirs...), true
	}
	return l.found[dir]
}
