package gateway

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/metrics"
)

// replicaKey names a replica: the key of its workspace, and its job.
type replicaKey struct{ workspace, job string }

// takeUsage takes what a replica uses from an event.
func (g *Gateway) takeUsage(e *berth.Event) {
	job, ok := strings.CutPrefix(e.Subject, "jobs/")
	if !ok || e.Type != berth.EventTaskUsage {
		return
	}
	g.mu.Lock()
	p := g.table.replicas[replicaKey{e.Workspace, job}]
	g.mu.Unlock()
	var d struct{ Usage *berth.Usage }
	if p == nil || json.Unmarshal(e.Data, &d) != nil || d.Usage == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.replicas[job]; ok {
		p.usage[job] = *d.Usage
	}
}

// trackReplicas has the samples of the pool's replicas come to it. g.mu is held.
func (g *Gateway) trackReplicas(workspace string, p *pool, replicas []berth.Replica) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for job := range p.replicas {
		delete(g.table.replicas, replicaKey{workspace, job})
	}
	usage := map[string]berth.Usage{}
	p.replicas = map[string]string{}
	for _, r := range replicas {
		g.table.replicas[replicaKey{workspace, r.Job}] = p
		p.replicas[r.Job] = r.State
		if u, ok := p.usage[r.Job]; ok {
			usage[r.Job] = u
		}
	}
	p.usage = usage
}

// Usage is what a replica used when it was last measured; zero where it has not been.
func (g *Gateway) Usage(workspace, job string) berth.Usage {
	g.mu.Lock()
	p := g.table.replicas[replicaKey{workspace, job}]
	g.mu.Unlock()
	if p == nil {
		return berth.Usage{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.usage[job]
}

// uses sums up what the replicas of a pool use, and counts them by their state.
func (p *pool) uses() (cores float64, memory int64, states map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	states = map[string]int{berth.ReplicaStarting: 0, berth.ReplicaReady: 0, berth.ReplicaDraining: 0}
	for job, state := range p.replicas {
		states[state]++
		cores += p.usage[job].CPUPercent / 100
		memory += p.usage[job].MemoryBytes
	}
	return cores, memory, states
}

// writeUses writes what the replicas of n deployments use, in the form of Prometheus.
func writeUses(w *metrics.Writer, n int, at func(i int) (p *pool, labels []string)) {
	w.Begin("berth_endpoint_replicas", metrics.Gauge, "Replicas of deployments of online endpoints, by state.")
	for i := range n {
		p, labels := at(i)
		_, _, states := p.uses()
		for _, state := range []string{berth.ReplicaStarting, berth.ReplicaReady, berth.ReplicaDraining} {
			w.Sample("berth_endpoint_replicas", float64(states[state]), append(slices.Clone(labels), "state", state)...)
		}
	}
	w.Begin("berth_endpoint_cpu_cores", metrics.Gauge, "CPU that the replicas use, in cores, as last measured.")
	for i := range n {
		p, labels := at(i)
		cores, _, _ := p.uses()
		w.Sample("berth_endpoint_cpu_cores", cores, labels...)
	}
	w.Begin("berth_endpoint_memory_bytes", metrics.Gauge, "Memory that the replicas have, as last measured.")
	for i := range n {
		p, labels := at(i)
		_, memory, _ := p.uses()
		w.Sample("berth_endpoint_memory_bytes", float64(memory), labels...)
	}
}
