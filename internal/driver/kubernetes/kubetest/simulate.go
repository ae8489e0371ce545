//go:build linux

package kubetest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Taint is the taint and the label of simulated nodes.
const Taint = "simulated"

// stages says how KWOK plays pods and nodes; tests of a package below internal/driver find it.
const stages = "../../../e2e/engines/k8s/kwok/stages.yaml"

// Simulate adds nodes with eight GPUs each that run nothing: their pods succeed.
func (c *Cluster) Simulate(t testing.TB, n int) {
	t.Helper()
	kwok := filepath.Join(cache(), "kwok")
	if _, err := exec.LookPath(kwok); err != nil {
		t.Fatal(err)
	}
	ports, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	c.run(t, "kwok", kwok, "--kubeconfig", c.Kubeconfig, "--config", stages,
		"--manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake", "--server-address", fmt.Sprintf("127.0.0.1:%d", ports[0]))
	var nodes []any
	has := map[string]any{"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
	for i := range n {
		name := fmt.Sprintf("simulated-%04d", i)
		nodes = append(nodes, map[string]any{
			"apiVersion": "v1", "kind": "Node", "spec": map[string]any{"taints": []any{map[string]any{"key": Taint, "effect": "NoSchedule"}}},
			"metadata": map[string]any{
				"name": name, "annotations": map[string]any{"kwok.x-k8s.io/node": "fake"},
				"labels": map[string]any{Taint: "yes", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": runtime.GOARCH},
			},
			"status": map[string]any{"allocatable": has, "capacity": has},
		})
	}
	b, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": nodes})
	if err != nil {
		t.Fatal(err)
	}
	path := c.path("simulated.json")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := c.Kubectl("apply", "--server-side", "-f", path); err != nil {
		t.Fatal(out)
	}
	c.until(t, "simulated nodes", func() bool {
		out, err := c.Kubectl("get", "nodes", "-l", Taint, "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`)
		return err == nil && strings.Count(out, "True") == n
	})
}
