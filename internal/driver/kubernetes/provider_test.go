package kubernetes

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// TestNodeOfSize: the pod of a node asks for what its size has, or for what the instance type of
// that name says, and autoscalers leave it alone.
func TestNodeOfSize(t *testing.T) {
	s, err := readSite([]byte(`{"properties":{"properties":{"image":"x","instanceTypes":{
"standard_b":{"nodeSelector":{"pool":"b"},"resources":{"requests":{"cpu":"3500m"}}},
"standard_b-low":{"nodeSelector":{"pool":"spot"}}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	boot := &driver.Boot{Cluster: "big", Home: berth.Home{URL: "https://h"}, Join: []byte("{}")}
	for _, x := range []struct {
		spec      driver.NodeSpec
		has, hasn []string
	}{
		{driver.NodeSpec{Size: "Standard_A", CPUs: 4, Memory: 1 << 30}, []string{`"cpu":"4"`, `"memory":"1073741824"`}, []string{"nvidia.com", "pool"}},
		{driver.NodeSpec{Size: "Standard_B", CPUs: 4, Memory: 1 << 30, GPUs: []int{0, 1}}, []string{`"cpu":"3500m"`, `"nvidia.com/gpu":"2"`, `"pool":"b"`}, []string{`"cpu":"4"`}},
		{driver.NodeSpec{Size: "Standard_B", CPUs: 4, Memory: 1 << 30, Low: true}, []string{`"pool":"spot"`, `"cpu":"4"`}, []string{"3500m"}},
	} {
		x.spec.Name, x.spec.Boot = "n1", boot
		o, err := nodeOf(s, x.spec, "name", "compute", "hash")
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range append(x.has, `/safe-to-evict":"false"`, "do-not-disrupt", `"_node","--dir"`, `"join.json"`, `"terminationGracePeriodSeconds":5`) {
			if !strings.Contains(string(b), want) {
				t.Errorf("%s: no %s in %s", x.spec.Size, want, b)
			}
		}
		for _, not := range x.hasn {
			if strings.Contains(string(b), not) {
				t.Errorf("%s: %s in %s", x.spec.Size, not, b)
			}
		}
	}
	s.Image = ""
	if _, err := nodeOf(s, driver.NodeSpec{Boot: boot}, "n", "c", "h"); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("without an image: %v", err)
	}
}

// TestMadeNode: a node is there when its pod runs, waits with the cluster's reason, and is gone
// when its pod is.
func TestMadeNode(t *testing.T) {
	none := func() map[string]refused { return nil }
	for want, text := range map[string]string{
		"":                     `{"status":{"phase":"Running","podIP":"10.0.0.1"},"spec":{"nodeName":"m"}}`,
		"Insufficient cpu":     `{"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","message":"0/3 nodes: Insufficient cpu"}]}}`,
		"started on node m":    `{"status":{"phase":"Pending"},"spec":{"nodeName":"m"}}`,
		"gone: its pod was":    `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"status":{"phase":"Running"}}`,
		"gone: its pod failed": `{"status":{"phase":"Failed","reason":"Odd"}}`,
	} {
		var p pod
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatal(err)
		}
		n := madeNode("n1", &job{}, &p, none)
		says := n.Why
		if n.Gone {
			says = "gone: " + n.Why
		}
		if n.Name != "n1" || !strings.Contains(says, want) || want == "" && (says != "" || n.Address != "10.0.0.1") {
			t.Errorf("%s: %+v, want %q", text, n, want)
		}
	}
}
