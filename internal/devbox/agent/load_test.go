//go:build linux

package agent_test

import (
	"testing"
	"time"

	"github.com/berthml/berth/internal/devbox/agent"
)

// TestLoadSaysWhatWas: the last thing that kept an instance awake is what its processes used then,
// not what they use now.
func TestLoadSaysWhatWas(t *testing.T) {
	now := time.Now()
	busy, idle := agent.LoadSignals(0.42, now)
	if !busy.Busy || busy.Why != "its processes use 42 % of a core" {
		t.Errorf("busy: %+v", busy)
	}
	if idle.Busy || !idle.Last.Equal(now) || idle.Why != "its processes used 42 % of a core" {
		t.Errorf("idle: %+v", idle)
	}
	if _, idle := agent.LoadSignals(0.05, now); idle.Busy || !idle.Last.IsZero() {
		t.Errorf("never busy: %+v", idle)
	}
}
