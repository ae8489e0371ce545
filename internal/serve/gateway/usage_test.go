package gateway

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/metrics"
)

// TestUsage: what the replicas of a deployment use is what was measured last; of those that left,
// and of jobs that are not replicas, nothing is kept.
func TestUsage(t *testing.T) {
	g := New(Options{Secret: noSecret})
	p := newPool(noSecret)
	g.table.pools[[3]string{"ws", "e", "blue"}] = p
	replicas := []berth.Replica{{Job: "a", State: berth.ReplicaReady}, {Job: "b", State: berth.ReplicaStarting}}
	g.trackReplicas("ws", p, replicas)
	measure := func(workspace, job string, u berth.Usage) {
		data, err := json.Marshal(map[string]any{"usage": u})
		if err != nil {
			t.Fatal(err)
		}
		g.takeUsage(&berth.Event{Workspace: workspace, Subject: "jobs/" + job, Type: berth.EventTaskUsage, Data: data})
	}
	measure("ws", "a", berth.Usage{CPUPercent: 90, MemoryBytes: 100})
	measure("ws", "a", berth.Usage{CPUPercent: 30, MemoryBytes: 70})
	measure("ws", "b", berth.Usage{CPUPercent: 20, MemoryBytes: 5})
	measure("other", "a", berth.Usage{CPUPercent: 1, MemoryBytes: 1})
	measure("ws", "somebody's", berth.Usage{CPUPercent: 1, MemoryBytes: 1})
	if u := g.Usage("ws", "a"); u.MemoryBytes != 70 || u.CPUPercent != 30 {
		t.Errorf("%+v", u)
	}
	if u := g.Usage("ws", "somebody's"); u != (berth.Usage{}) {
		t.Errorf("of a job that is no replica: %+v", u)
	}
	written := func() string {
		w := &metrics.Writer{}
		g.Metrics(w)
		return w.String()
	}
	const labels = `{workspace="ws",endpoint="e",deployment="blue"`
	for _, line := range []string{
		"berth_endpoint_cpu_cores" + labels + "} 0.5\n", "berth_endpoint_memory_bytes" + labels + "} 75\n",
		"berth_endpoint_replicas" + labels + `,state="ready"} 1` + "\n", "berth_endpoint_replicas" + labels + `,state="starting"} 1` + "\n", "berth_endpoint_replicas" + labels + `,state="draining"} 0` + "\n",
	} {
		if text := written(); !strings.Contains(text, line) {
			t.Errorf("there is no %s in\n%s", line, text)
		}
	}
	g.trackReplicas("ws", p, replicas[1:])
	if text := written(); !strings.Contains(text, "berth_endpoint_memory_bytes"+labels+"} 5\n") || len(g.table.replicas) != 1 || len(p.usage) != 1 {
		t.Errorf("a replica that left is still known: %v %v\n%s", g.table.replicas, p.usage, text)
	}
}
