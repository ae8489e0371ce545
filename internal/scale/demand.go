package scale

import "fmt"

// demand is how many gangs wait, the tasks they have, and the nodes that the largest needs.
type demand struct {
	gangs, tasks, largest int
}

// waiting is all gangs that may ever run, and those that could with the nodes that may be had now.
type waiting struct{ all, reach demand }

func demandOf(p Pool, reach int) (w waiting) {
	for nodes, gangs := range p.Sizes {
		if nodes <= p.Max {
			w.all.add(nodes, gangs)
		}
		if nodes <= reach {
			w.reach.add(nodes, gangs)
		}
	}
	return w
}

func (d *demand) add(nodes, gangs int) {
	d.tasks += nodes * gangs
	d.gangs += gangs
	d.largest = max(d.largest, nodes)
}

// lack is how many nodes are missing for a demand; less than 0 when there are more than it needs.
// One task goes to each node that has a free slot before the next goes anywhere, so that there are
// enough nodes for the largest gang.
func (s *state) lack(d demand) int {
	need := (max(0, d.tasks-s.free) + s.slots - 1) / s.slots
	return max(need, d.largest-s.spots) - len(s.idle) - len(s.starting)
}

// why is the reason to grow.
func (d demand) why(p Pool, s *state) string {
	switch {
	case s.alive+s.lack(d) < p.Min:
		return fmt.Sprintf("%s keeps at least %s", p.Name, nodes(p.Min))
	case d.gangs == 1 && d.largest > 1:
		return fmt.Sprintf("1 job waits for %d nodes at once", d.largest)
	case d.gangs == 1:
		return "1 job waits"
	case d.gangs == d.tasks:
		return fmt.Sprintf("%d jobs wait", d.gangs)
	}
	return fmt.Sprintf("%d jobs of %d tasks wait", d.gangs, d.tasks)
}
