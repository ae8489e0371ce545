//go:build engines

package peer

import (
	"os"
	"strings"
	"testing"
)

// Pods find their nodes on a real control plane, round after round.
func TestKube(t *testing.T) {
	if _, err := KubeKit(); err != nil {
		if strings.Contains(os.Getenv("BERTH_REQUIRE_ENGINES"), "k8s") {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	k, err := StartKube(t.Context(), nil, t.TempDir(), 8)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Stop()
	t.Log(k.Version)
	for range 2 {
		// As many as there is room for: the second round only finds it when the first was cleared.
		r, own, err := k.Schedule(t.Context(), 80)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%.0f pods/s, the scheduler's own CPU %.3g ms", r.PerSecond, own)
		if r.PerSecond <= 0 {
			t.Errorf("%+v", r)
		}
		var list struct {
			Items []struct{ Spec struct{ NodeName string } }
		}
		if err := k.api.get(t.Context(), "/api/v1/namespaces/default/pods", &list); err != nil {
			t.Fatal(err)
		}
		on := map[string]int{}
		for _, p := range list.Items {
			on[p.Spec.NodeName]++
		}
		if len(list.Items) != 80 || len(on) != 8 || on["n00001"] != 10 {
			t.Errorf("%d pods on %v", len(list.Items), on)
		}
		if err := k.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
