package runner

import (
	"syscall"
	"testing"
)

// A child's peak as the kernel tells it begins with its parent's: what is not above our own is not
// claimed.
func TestPeakOf(t *testing.T) {
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		t.Fatal(err)
	}
	if got := peakOf(syscall.Rusage{Maxrss: own.Maxrss / 2}); got != 0 {
		t.Errorf("a small command is said to have had %d bytes", got)
	}
	big := own.Maxrss + 1<<20
	if got := peakOf(syscall.Rusage{Maxrss: big}); got != big<<10 {
		t.Errorf("%d bytes, want %d", got, big<<10)
	}
}
