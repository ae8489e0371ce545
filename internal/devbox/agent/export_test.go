//go:build linux

package agent

import (
	"time"

	"github.com/berthml/berth/internal/devbox"
)

// GPUSignal is for tests.
var GPUSignal = gpuSignal

// LoadSignals are what the CPU's signal says after a second in which its processes used so much of
// a core, and in the one after it.
func LoadSignals(share float64, now time.Time) (busy, idle devbox.Signal) {
	l := load{processes: &processGroup{}, at: now, share: share}
	busy = l.signal(now)
	l.share = 0
	return busy, l.signal(now)
}
