package sched

import "fmt"

// placed is why a gang got its nodes.
func (s *round) placed(g *Gang, on []string) string {
	switch {
	case s.local && s.free[0] < s.pool.Ahead:
		if s.said.line == "" {
			s.said.line = fmt.Sprintf("next in line on %s: it runs as soon as one of the %d slots is free", s.pool.Name, s.pool.Nodes[0].Slots)
		}
		return s.said.line
	case s.local:
		if s.said.placed == "" {
			s.said.placed = "placed on " + s.pool.Name + ": a slot was free"
		}
		return s.said.placed
	case g.Nodes == 1 && s.gpus != nil && g.GPUs > 0:
		return fmt.Sprintf("placed on %s: a slot and %s were free", on[0], count(g.GPUs, "GPU"))
	case g.Nodes == 1:
		return "placed on " + on[0] + ": a slot was free"
	}
	return fmt.Sprintf("placed on %d nodes of %s: all had a free slot at once", g.Nodes, s.pool.Name)
}

// filled is why a gang got nodes although another goes first.
func (s *round) filled(on []string, short bool) string {
	where, them := on[0], "it"
	if len(on) > 1 {
		where, them = fmt.Sprintf("%d nodes of %s", len(on), s.pool.Name), "them"
	}
	if short {
		return fmt.Sprintf("placed on %s: it ends before job %s, which goes first, can start", where, s.head.name())
	}
	return fmt.Sprintf("placed on %s: job %s, which goes first, can do without %s", where, s.head.name(), them)
}

func (s *round) down() string {
	if s.said.full == "" {
		s.said.full = s.pool.Name + " takes no jobs now: " + s.pool.Down
	}
	return s.said.full
}

func (s *round) never(g *Gang) string {
	return s.once(g, func() string {
		if s.pool.Max == 0 {
			return fmt.Sprintf("needs %s, and %s can have none", nodes(g.Nodes), s.pool.Name)
		}
		return fmt.Sprintf("needs %s, and %s can have at most %d", nodes(g.Nodes), s.pool.Name, s.pool.Max)
	})
}

func (s *round) bounded(g *Gang) string {
	return s.once(g, func() string {
		has := fmt.Sprint(s.ready + s.pool.Starting)
		if has == "0" {
			has = "none"
		}
		return fmt.Sprintf("needs %s, and %s has %s and cannot grow: %s", nodes(g.Nodes), s.pool.Name, has, s.pool.Short)
	})
}

// once makes a sentence that depends on nothing but how many nodes and GPUs a gang needs.
func (s *round) once(g *Gang, say func() string) string {
	key := [2]int{g.Nodes, g.GPUs}
	why, ok := s.said.stuck[key]
	if !ok {
		if s.said.stuck == nil {
			s.said.stuck = map[[2]int]string{}
		}
		why = say()
		s.said.stuck[key] = why
	}
	return why
}

// later is why a gang waits that was not looked at.
func (s *round) later(g *Gang) string {
	if why := s.stuck(g); why != "" {
		return why
	}
	switch {
	case s.local && s.ready == 0:
		return "waiting for " + s.pool.Name + ": it is not ready"
	case s.local:
		if s.said.full == "" {
			s.said.full = fmt.Sprintf("waiting for %s: all %d slots are in use", s.pool.Name, s.pool.Nodes[0].Slots)
		}
		return s.said.full
	case s.avail() == 0 && s.ready > 0 && s.outlook.come == 0:
		return s.lacking(g)
	}
	return fmt.Sprintf("its turn on %s has not come: %d jobs or more go first", s.pool.Name, look)
}

// lacking is what there is too little of for a gang.
func (s *round) lacking(g *Gang) string {
	if s.ready == 0 {
		return fmt.Sprintf("needs %s of %s, and jobs that go first leave fewer of the %d to come", nodes(g.Nodes), s.pool.Name, s.outlook.come)
	}
	why := s.asks(g)
	if s.pool.Short != "" && s.ready+s.pool.Starting < s.pool.Max {
		why += "; it cannot grow: " + s.pool.Short
	}
	return why
}

// asks is what a gang needs beside what there is.
func (s *round) asks(g *Gang) string {
	free := s.avail()
	switch {
	case free == 0 && g.Nodes == 1:
		return s.full()
	case free == 0:
		return fmt.Sprintf("needs %d nodes at once, and %s", g.Nodes, s.full())
	case s.gpus != nil && s.seats(g) < free:
		return s.lackGPUs(g)
	case s.slots > 1 && free == 1:
		return fmt.Sprintf("needs %d nodes at once, 1 has a free slot", g.Nodes)
	case s.slots > 1:
		return fmt.Sprintf("needs %d nodes at once, %d have a free slot", g.Nodes, free)
	case free == 1:
		return fmt.Sprintf("needs %d nodes at once, 1 is free", g.Nodes)
	}
	return fmt.Sprintf("needs %d nodes at once, %d are free", g.Nodes, free)
}

// full is that no node has a free slot.
func (s *round) full() string {
	switch {
	case s.ready == 1 && len(s.pool.Nodes) == 1:
		return fmt.Sprintf("the node of %s is in use", s.pool.Name)
	case s.ready == len(s.pool.Nodes):
		return fmt.Sprintf("all %d nodes of %s are in use", s.ready, s.pool.Name)
	case s.ready == 1:
		return fmt.Sprintf("the one node of %s that is ready is in use", s.pool.Name)
	}
	return fmt.Sprintf("all %d nodes of %s that are ready are in use", s.ready, s.pool.Name)
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// jobs names one gang, or counts several.
func jobs(r []*Running) string {
	if len(r) == 1 {
		return "job " + r[0].name()
	}
	return fmt.Sprintf("%d jobs", len(r))
}
