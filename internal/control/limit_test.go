package control_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
)

// limit sets a limit of the workspace for the family of the plant's clusters.
func (p *plant) limit(vcpus int, expires time.Time) {
	p.t.Helper()
	ask := map[string]any{"size": "Standard_DS3_v2", "vCPUs": vcpus}
	if !expires.IsZero() {
		ask["expires"] = expires
	}
	if code, b := p.do("POST", p.ws+"/quotas", ask); code != http.StatusOK {
		p.t.Fatalf("%d %s", code, b)
	}
}

// TestLimitEnds: when a limit ends nothing else happens, and what waited for that begins.
func TestLimitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.clusterOf("cpu", 0, 2, nil)
		p.limit(8, time.Time{})
		p.limit(0, time.Now().Add(time.Hour))
		p.on("cpu", "j", "true", nil)
		p.settle("it says why", func() bool { _, st := p.job("j"); return strings.Contains(st.Reason, "limit") })
		time.Sleep(59 * time.Minute)
		if s, _ := p.job("j"); s != berth.Queued {
			t.Errorf("it is %s before its time", s)
		}
		time.Sleep(time.Minute)
		p.until("j", berth.Completed)
	})
}
