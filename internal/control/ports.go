package control

import (
	"cmp"
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

// Ports where the processes of distributed jobs meet, below those that the kernel assigns.
const (
	firstPort = 20000
	lastPort  = 32000
	portSpare = 8 // beyond one for each process and node
	portPause = 2 * time.Second
)

// portBlock is how many ports are handed out at least; a job has one or several blocks.
const portBlock = 64

// ports hands out spans of ports that nobody listens on, each one or several blocks. As long as a
// block is in use or reserved its claim is listened on, a port below all blocks: so other servers
// on this machine know, also before the job's processes listen.
//
// Sockets are opened outside of transactions only: a cycle takes what was reserved before, and asks
// for what it lacks, which is reserved once the cycle is durable.
type ports struct {
	next     int
	size     map[int]int          // of spans in use, by the first port
	reserved map[int]int          // of spans that wait for a job, by the first port
	claims   map[int]net.Listener // by the first port of a block
	lacking  map[int]int          // spans that could not be had, by the ports needed
	none     error                // why not
}

// errNoPorts says that too many ports are in use now: it will be otherwise later.
var errNoPorts = errors.New("no ports are free")

// errPortsAsked says that ports were requested; they are reserved once the cycle is durable.
var errPortsAsked = errors.New("ports for its processes to meet are being reserved")

// spanOf is how many ports a job gets that needs n.
func spanOf(n int) (int, error) {
	span := (n + portBlock - 1) / portBlock * portBlock
	if span > lastPort-firstPort {
		return 0, berth.Errorf(berth.Limit, "the job's processes need %d ports to meet, and there are %d; run fewer processes", n, lastPort-firstPort)
	}
	return span, nil
}

// takePorts gives a job the first of n reserved ports in a row.
func (cy *cycle) takePorts(n int) (int, error) {
	span, err := spanOf(n)
	if err != nil {
		return 0, err
	}
	for at, size := range cy.c.ports.reserved {
		if size == span && !cy.plan.portsTaken[at] {
			if cy.plan.portsTaken == nil {
				cy.plan.portsTaken = map[int]bool{}
			}
			cy.plan.portsTaken[at] = true
			return at, nil
		}
	}
	cy.plan.portsAsked = append(cy.plan.portsAsked, n)
	return 0, cmp.Or(cy.c.ports.none, errPortsAsked)
}

// settlePorts claims the ports of what a cycle started, gives up those of what ended, and reserves
// what it asked for.
func (c *Control) settlePorts(cy *cycle) {
	if cy.portsChanged() {
		c.ports.keep(c.portSizes())
	}
	lacking := map[int]int{} // how many spans, by the ports needed
	for _, n := range cy.plan.portsAsked {
		lacking[n]++
	}
	if len(lacking) > 0 {
		c.ports.lacking = lacking
		c.ports.fill()
	}
}

// fill reserves what is lacking, as far as it can be had.
func (p *ports) fill() {
	p.none = nil
	for n, count := range p.lacking {
		p.reserve(n, count)
	}
	if p.none == nil {
		p.lacking = nil
	}
}

// reserve sees to it that count spans of n ports wait for jobs.
func (p *ports) reserve(n, count int) {
	span, err := spanOf(n)
	if err != nil {
		return // which the job was told
	}
	for _, size := range p.reserved {
		if size == span {
			count--
		}
	}
	for range count {
		at, err := p.find(n, span)
		if err != nil {
			p.none = err
			return
		}
		p.reserved[at] = span
	}
}

// find claims a span of which the first n ports are free. Its first port is returned.
func (p *ports) find(n, span int) (int, error) {
	p.init()
	if p.next == 0 {
		p.next = firstPort + rand.IntN((lastPort-firstPort)/portBlock)*portBlock
	}
next:
	for range (lastPort - firstPort) / portBlock {
		if p.next+span > lastPort {
			p.next = firstPort
		}
		at := p.next
		p.next += portBlock
		for b := at; b < at+span; b += portBlock {
			if p.claims[b] != nil || p.has(b) {
				continue next
			}
		}
		if p.claim(at, span) && quiet(at, n) {
			p.next = at + span
			return at, nil
		}
		p.release(at, span)
	}
	return 0, fmt.Errorf("%w: no %d in a row between %d and %d for the processes to meet", errNoPorts, span, firstPort, lastPort)
}

// has reports whether a block belongs to a job that runs: one that was started before this process
// may be in use without a claim.
func (p *ports) has(b int) bool {
	for at, n := range p.size {
		if b >= at && b < at+n {
			return true
		}
	}
	return false
}

func (p *ports) init() {
	if p.claims == nil {
		p.claims, p.size, p.reserved = map[int]net.Listener{}, map[int]int{}, map[int]int{}
	}
}

// quiet reports whether nobody listens on any of the ports.
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
	p.init()
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

// keep claims the spans in use, sizes by first port, and gives up all others but the reserved ones.
// A claim that cannot be had, because a server took the block while this one was away, is done
// without: the job runs already.
func (p *ports) keep(size map[int]int) {
	p.init()
	used := map[int]bool{}
	for at, n := range size {
		delete(p.reserved, at)
		p.claim(at, n)
		for b := at; b < at+n; b += portBlock {
			used[b] = true
		}
	}
	for at, n := range p.reserved {
		for b := at; b < at+n; b += portBlock {
			used[b] = true
		}
	}
	for b := range p.claims {
		if !used[b] {
			p.release(b, portBlock)
		}
	}
	p.size = size
}

// close gives everything up.
func (p *ports) close() {
	clear(p.reserved)
	p.keep(map[int]int{})
}

// portsChanged says whether the ports in use may be others than before.
func (cy *cycle) portsChanged() bool {
	return cy.reloaded || slices.ContainsFunc(cy.plan.starts, func(s taskStart) bool { return s.task.Port != 0 }) ||
		slices.ContainsFunc(cy.plan.ended, func(p *placement) bool { return p.task.Port != 0 })
}

// portSizes is how many ports each job has that was placed, by the first.
func (c *Control) portSizes() map[int]int {
	size := map[int]int{}
	for _, p := range c.state.placed {
		if t := &p.task; t.Port != 0 {
			size[t.Port] = max(portBlock, c.ports.size[t.Port], c.ports.reserved[t.Port], t.Count+portSpare)
		}
	}
	return size
}
