package control

import (
	"fmt"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// loopback is where the processes of a job of one node reach one another.
const loopback = "127.0.0.1"

// grouped says whether the processes of a job have to find each other.
func grouped(v *berth.CommandJob, nodes int) bool { return nodes > 1 || v.Distribution != nil }

// perNode is how many processes run on each node.
func perNode(v *berth.CommandJob) int {
	if v.Distribution == nil {
		return 1
	}
	return max(1, v.Distribution.ProcessCountPerInstance)
}

// withAddresses is a target with the addresses of the nodes that its provider made.
func (cy *cycle) withAddresses(on driver.Info, t *berth.Task) driver.Info {
	p := cy.state.pool(keyOf(t.Workspace, t.Compute))
	if p == nil || p.spec.Provider == "" {
		return on
	}
	on.Nodes = nil
	for _, n := range p.nodes {
		on.Nodes = append(on.Nodes, driver.Node{Name: n.Name, Address: n.Address})
	}
	return on
}

// tensorflow is the numbers of workers and parameter servers, 0 and 0 when the job is of another
// kind.
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

// groupOf is the i-th node's part of a distributed job. Ranks are numbered node by node;
// TensorFlow's are dealt out to the nodes in turn, workers first.
func groupOf(v *berth.CommandJob, tasks []*berth.Task, i int, secret string, on driver.Info) *berth.Group {
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
		peer := berth.Peer{Name: t.Node, Address: on.AddressOf(t.Node), Slots: slots[k]}
		switch {
		case on.Gangs && len(tasks) > 1:
			peer.Address = "" // which the target knows when it has chosen the nodes
		case peer.Address == "" && len(tasks) == 1:
			peer.Address = loopback
		}
		g.Nodes = append(g.Nodes, peer)
	}
	return g
}
