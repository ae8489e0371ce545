package kubernetes

import (
	"net/http"
	"strings"
	"testing"
)

// TestKueueVersion: Kueue's objects are read in the version that the cluster prefers, also when
// that changes.
func TestKueueVersion(t *testing.T) {
	served, asked := "", 0
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case served == "" || !strings.HasPrefix(r.URL.Path, "/apis/kueue.x-k8s.io"):
			w.WriteHeader(http.StatusNotFound)
		case r.URL.Path == "/apis/kueue.x-k8s.io":
			asked++
			w.Write([]byte(`{"kind":"APIGroup","preferredVersion":{"groupVersion":"` + served + `"}}`))
		case strings.HasPrefix(r.URL.Path, "/apis/"+served+"/"):
			w.Write([]byte(`{"items":[{"metadata":{"ownerReferences":[{"kind":"Job","uid":"1"}]},"status":{"conditions":[{"type":"QuotaReserved","status":"False","message":"not yet"}]}}]}`))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	if got := c.refusals(t.Context(), "q"); len(got) != 0 {
		t.Errorf("without Kueue: %v", got)
	}
	for i, version := range []string{"kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"} {
		served = version
		for range 2 {
			if got := c.refusals(t.Context(), "q")["1"]; got.why != "not yet" || got.evicted {
				t.Errorf("%s: %+v", version, got)
			}
		}
		if asked != i+1 {
			t.Errorf("%s: the version was asked for %d times", version, asked)
		}
	}
}

// TestKueueEvicted: a place that Kueue took back is told from one that it has not given yet.
func TestKueueEvicted(t *testing.T) {
	for text, want := range map[string]string{
		"Preempted": "to make room", "ClusterQueueStopped": "to make room", "PodsReadyTimeout": "", "Deactivated": "",
	} {
		var w workload
		w.Status.Conditions = []condition{
			{Type: "QuotaReserved", Status: "False", Reason: "Pending", Message: "to make room"},
			{Type: "Evicted", Status: "True", Reason: text, Message: "to make room"},
		}
		if got := w.evicted(); got != want {
			t.Errorf("%s: %q", text, got)
		}
		w.Status.Conditions[1].Status = "False"
		if got := w.evicted(); got != "" {
			t.Errorf("%s, in the past: %q", text, got)
		}
	}
}
