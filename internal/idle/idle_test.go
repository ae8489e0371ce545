package idle

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestOnceForEachQuietTime counts how often memory is released, with a clock of its own.
func TestOnceForEachQuietTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var released atomic.Int32
		w := watch(5*time.Second, func() { released.Add(1) })
		check := func(want int32, when string) {
			t.Helper()
			synctest.Wait()
			if got := released.Load(); got != want {
				t.Errorf("%s: released %d times, want %d", when, got, want)
			}
		}
		for range 20 { // in use, more often than that
			time.Sleep(3 * time.Second)
			w.Used()
		}
		check(0, "while it was used")
		time.Sleep(10*time.Second + 1)
		check(1, "once it was quiet")
		time.Sleep(time.Hour)
		check(1, "an hour later")
		w.Used()
		time.Sleep(5*time.Second + 1)
		check(2, "after another use")
	})
}

// TestConcurrentUses runs uses against the timer: none may be lost, and the race detector looks.
func TestConcurrentUses(t *testing.T) {
	done := make(chan struct{}, 1)
	w := watch(time.Microsecond, func() {
		select {
		case done <- struct{}{}:
		default:
		}
	})
	for range 200 {
		w.Used()
		<-done // every use is followed by a release
	}
}
