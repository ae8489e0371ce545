package dialout

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
)

// TestHere has an agent that reaches the server at another address than the one the server knows
// itself by: everything of the server's is looked for there, and nothing else is touched.
func TestHere(t *testing.T) {
	a := Agent{Join: Join{Server: "https://there:2/"}}
	got := a.here(berth.Launch{
		Home: berth.Home{URL: "https://here:1", Token: "t"}, Code: "https://here:1/st/code?sig=x", Artifacts: "https://here:1/st/a", LogFile: "/srv/log", Keep: "/srv/keep",
		Environment: berth.LaunchEnv{Build: "https://here:1/b"}, Tracking: &berth.LaunchTracking{URI: "https://here:1/mlflow"},
		Inputs:  map[string]berth.LaunchInput{"ours": {URL: "https://here:1/in"}, "other": {URL: "https://here:12/in"}, "text": {Value: "https://here:1/in"}},
		Outputs: map[string]berth.LaunchOutput{"ours": {URL: "https://here:1/out"}, "other": {URL: "https://else/https://here:1/"}},
	})
	want := berth.Launch{
		Home: berth.Home{URL: "https://there:2", Token: "t"}, Code: "https://there:2/st/code?sig=x", Artifacts: "https://there:2/st/a",
		Environment: berth.LaunchEnv{Build: "https://there:2/b"}, Tracking: &berth.LaunchTracking{URI: "https://there:2/mlflow"},
		Inputs:  map[string]berth.LaunchInput{"ours": {URL: "https://there:2/in"}, "other": {URL: "https://here:12/in"}, "text": {Value: "https://here:1/in"}},
		Outputs: map[string]berth.LaunchOutput{"ours": {URL: "https://there:2/out"}, "other": {URL: "https://else/https://here:1/"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
