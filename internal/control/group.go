package control

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
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

// grouped says whether the processes of a job have to find each other.
func grouped(v *berth.CommandJob, nodes int) bool { return nodes > 1 || v.Distribution != nil }

// perNode is how many processes run on each node.
func perNode(v *berth.CommandJob) int {
	if v.Distribution == nil {
		return 1
	}
	return max(1, v.Distribution.ProcessCountPerInstance)
}

// tensorflow is the numbers of workers and parameter servers, 0 and 0 when the job is of another kind.
func tensorflow(v *berth.CommandJob, nodes int) (workers, servers int) {
	if v.Distribution == nil || !strings.EqualFold(v.Distribution.Type, "tensorflow") {
		return 0, 0
	}
	workers, servers = v.Distribution.WorkerCount, v.Distribution.ParameterServerCount
	if workers == 0 {
		workers = max(1, nodes-servers)
	}
	return workers, servers
}

// worldSize is how many processes a job has in all.
func worldSize(v *berth.CommandJob, nodes int) int {
	if w, ps := tensorflow(v, nodes); w+ps > 0 {
		return w + ps
	}
	return nodes * perNode(v)
}

// groupOf is the i-th node's part of a distributed job. Ranks are numbered node by node; TensorFlow's are dealt out to the nodes in
// turn, workers first.
func groupOf(v *berth.CommandJob, tasks []*berth.Task, i int, secret string) *berth.Group {
	g := &berth.Group{Node: i, Port: tasks[0].Port, Secret: secret, World: worldSize(v, len(tasks))}
	if v.Distribution != nil {
		g.Type = strings.ToLower(v.Distribution.Type)
	}
	g.Workers, g.Servers = tensorflow(v, len(tasks))
	slots := make([]int, len(tasks))
	for rank := range g.World {
		at := rank / perNode(v)
		if g.Workers > 0 {
			at = rank % len(tasks)
		}
		if at == i {
			g.Processes = append(g.Processes, berth.Process{Rank: rank, Local: slots[at], Log: fmt.Sprintf("user_logs/std_log_process_%d.txt", rank)})
		}
		slots[at]++
	}
	for k, t := range tasks {
		// The nodes of the host provider are this machine's. Providers with machines of their own will say where theirs are.
		g.Nodes = append(g.Nodes, berth.Peer{Name: t.Node, Address: "127.0.0.1", Slots: slots[k]})
	}
	return g
}

// portBlock is how many ports are handed out at least; a job has one or several blocks.
const portBlock = 64

// ports hands out blocks of ports that nobody listens on.
type ports struct {
	next int
	size map[int]int // of what was handed out, by its first port
}

// errNoPorts says that too many ports are in use now: it will be otherwise later.
var errNoPorts = errors.New("no ports are free")

// free is the first of n ports in a row. taken are the first ports of blocks in use.
func (p *ports) free(n int, taken map[int]bool) (int, error) {
	if p.next == 0 {
		p.next = firstPort + rand.IntN((lastPort-firstPort)/portBlock)*portBlock
	}
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
		if quiet(at) {
			p.next = at + n
			p.size[at] = n
			return at, nil
		}
	}
	return 0, fmt.Errorf("%w: no %d in a row between %d and %d for the processes to meet", errNoPorts, n, firstPort, lastPort)
}

// quiet says that nobody listens on a port.
func quiet(port int) bool {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// portsInUse are the blocks of jobs that run, and of those that are about to.
func (m *move) portsInUse() map[int]bool {
	size := map[int]int{}
	note := func(t *berth.Task) {
		if t.Port != 0 {
			size[t.Port] = max(portBlock, m.c.ports.size[t.Port], t.Count+portSpare)
		}
	}
	for _, p := range m.c.placed {
		note(&p.task)
	}
	for i := range m.start {
		note(&m.start[i].task)
	}
	out := map[int]bool{}
	for at, n := range size {
		for b := at; b < at+n; b += portBlock {
			out[b] = true
		}
	}
	m.c.ports.size = size
	return out
}
