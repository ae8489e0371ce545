package control

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/berthml/berth"
)

// TestUnused: what a job asks for in vain is said, by compute, and nothing else is.
func TestUnused(t *testing.T) {
	of := func(typ, size string) *pool {
		p := newPool(poolKey{"w", "c"}, "c")
		p.spec = poolSpec{PoolSpec: berth.PoolSpec{ComputeProps: berth.ComputeProps{ComputeType: typ}}}
		p.spec.Properties.VMSize = size
		return p
	}
	machine, kube, cluster := of("VirtualMachine", ""), of("Kubernetes", ""), of("AmlCompute", "Standard_DS1_v2")
	for _, tt := range []struct {
		p     *pool
		props string
		want  string // the field that is named; empty: nothing is said
	}{
		{machine, `{"computeId":"c","command":"true"}`, ""},
		{machine, `{"computeId":"c","resources":{"instanceType":"gpu"}}`, "resources.instance_type gpu"},
		{kube, `{"computeId":"c","resources":{"instanceType":"gpu"}}`, ""},
		{cluster, `{"computeId":"c","resources":{"instanceType":"standard_ds1_v2"}}`, ""},
		{cluster, `{"computeId":"c","resources":{"instanceType":"Standard_NC6"}}`, "resources.instance_type Standard_NC6"},
		{cluster, `{"resources":{"instanceType":"Standard_NC6"},"queueSettings":{"jobTier":"Spot"}}`, ""},
		{machine, `{"resources":{"instanceType":"gpu","properties":{"IsLocal":{"IsLocal":true}}}}`, "resources.instance_type gpu"},
		{machine, `{"computeId":"c","queueSettings":{"jobTier":"Spot"}}`, "queue_settings.job_tier"},
		{machine, `{"computeId":"c","queueSettings":{"jobTier":"Null"}}`, ""},
		{machine, `{"computeId":"c","resources":{"locations":["x"]}}`, "resources.locations"},
		{machine, `{"computeId":"c","resources":{"maxInstanceCount":4}}`, "resources.max_instance_count"},
		{machine, `{"computeId":"c","identity":{"identityType":"AMLToken"}}`, ""},
		{machine, `{"computeId":"c","identity":{"identityType":"UserIdentity"}}`, "identity"},
	} {
		got := tt.p.unused(json.RawMessage(tt.props))
		if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], tt.want+" has no effect")) {
			t.Errorf("%s on %s: %q, want one about %q", tt.props, tt.p.spec.ComputeType, got, tt.want)
		}
	}
}
