//go:build linux

package agent_test

import (
	"os/exec"
	"testing"

	"github.com/berthml/berth/internal/devbox/agent"
)

// TestGPUSignal: where there is a GPU its use is known, and where there is none that is said, so
// that it counts as busy.
func TestGPUSignal(t *testing.T) {
	s := agent.GPUSignal(t.Context(), []int{0})
	t.Logf("%+v", s)
	if _, err := exec.LookPath("nvidia-smi"); err != nil {
		if s.Error == "" || s.Busy {
			t.Errorf("without a GPU: %+v", s)
		}
		return
	}
	if s.Error != "" {
		t.Errorf("with a GPU: %+v", s)
	}
	if none := agent.GPUSignal(t.Context(), []int{99}); none.Error == "" {
		t.Errorf("of a GPU that is not there: %+v", none)
	}
}
