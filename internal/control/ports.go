package control

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/berthml/berth"
)

// Ports of the meeting points of distributed jobs, below those the kernel hands out by itself.
const (
	firstPort = 20000
	lastPort  = 32000
	portSpare = 8 // beyond one for each process and node
	portPause = 2 * time.Second
)

// portBlock is how many ports are handed out at least; a job has one or several blocks.
const portBlock = 64

// ports hands out blocks of ports that nobody listens on. As long as a block is in use its claim is listened on, a port below all blocks:
// so other servers on this machine know, also before the job's processes listen.
type ports struct {
	next   int
	size   map[int]int          // of what was handed out, by its first port
	claims map[int]net.Listener // by the first port of a block
}

// errNoPorts says that too many ports are in use now: it will be otherwise later.
var errNoPorts = errors.New("no ports are free")

// free is the first of n ports in a row. taken are the first ports of blocks in use.
func (p *ports) free(n int, taken map[int]bool) (int, error) {
	if p.next == 0 {
		p.next = firstPort + rand.IntN((lastPort-firstPort)/portBlock)*portBlock
	}
	used := n
	n = (n + portBlock - 1) / portBlock * portBlock
	if n > lastPort-firstPort {
		return 0, berth.Errorf(berth.Limit, "the job's processes need %d ports to meet, and there are %d; run fewer processes", n, lastPort-firstPort)
	}
next:
	for range (lastPort - firstPort) / portBlock {
		if p.next+n > lastPort {
			p.next = firstPort
		}
		at := p.next
		p.next += portBlock
		for b := at; b < at+n; b += portBlock {
			if taken[b] {
				continue next
			}
		}
		if p.claim(at, n) && quiet(at, used) {
			p.next = at + n
			p.size[at] = n
			return at, nil
		}
		p.release(at, n)
	}
	return 0, fmt.Errorf("%w: no %d in a row between %d and %d for the processes to meet", errNoPorts, n, firstPort, lastPort)
}

// quiet says that nobody listens on ports.
func quiet(at, n int) bool {
	for port := at; port < at+n; port++ {
		l := listen(port)
		if l == nil {
			return false
		}
		l.Close()
	}
	return true
}

// listen is nil when somebody else does.
func listen(port int) net.Listener {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return nil
	}
	return l
}

// claim keeps other servers off blocks; false when one of them has been faster.
func (p *ports) claim(at, n int) bool {
	if p.claims == nil {
		p.claims, p.size = map[int]net.Listener{}, map[int]int{}
	}
	for b := at; b < at+n; b += portBlock {
		if p.claims[b] != nil {
			continue
		}
		l := listen(firstPort - 1 - (b-firstPort)/portBlock)
		if l == nil {
			return false
		}
		p.claims[b] = l
	}
	return true
}

// release gives blocks up.
func (p *ports) release(at, n int) {
	for b := at; b < at+n; b += portBlock {
		if l := p.claims[b]; l != nil {
			l.Close()
			delete(p.claims, b)
		}
	}
}

// keep claims the blocks in use, sizes by first port, and gives up all others. A claim that cannot be had, because a server took the
// block while this one was away, is done without: the job runs already.
func (p *ports) keep(size map[int]int) {
	used := map[int]bool{}
	for at, n := range size {
		p.claim(at, n)
		for b := at; b < at+n; b += portBlock {
			used[b] = true
		}
	}
	for b := range p.claims {
		if !used[b] {
			p.release(b, portBlock)
		}
	}
	if p.size = size; size == nil {
		p.size = map[int]int{}
	}
}

// portsInUse are the blocks of jobs that run, and of those that are about to.
func (m *move) portsInUse() map[int]bool {
	out := map[int]bool{}
	for at, n := range m.c.portSizes(m.start) {
		for b := at; b < at+n; b += portBlock {
			out[b] = true
		}
	}
	return out
}

// ported says whether the ports in use may be others than before.
func (m *move) ported() bool {
	return m.anew || slices.ContainsFunc(m.start, func(s started) bool { return s.task.Port != 0 }) ||
		slices.ContainsFunc(m.ended, func(p *placement) bool { return p.task.Port != 0 })
}

// portSizes is how many ports each job has that was placed, and each that is being placed, by the first.
func (c *Control) portSizes(start []started) map[int]int {
	size := map[int]int{}
	note := func(t *berth.Task) {
		if t.Port != 0 {
			size[t.Port] = max(portBlock, c.ports.size[t.Port], t.Count+portSpare)
		}
	}
	for _, p := range c.placed {
		note(&p.task)
	}
	for i := range start {
		note(&start[i].task)
	}
	return size
}
