package idle

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestOnceForEachQuietTime counts how often memory is released, with a clock of its own.
func TestOnceForEachQuietTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var released atomic.Int32
		w := watch(&Watcher{quiet: 5 * time.Second, release: func() { released.Add(1) }, unmap: func() {}})
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
	w := watch(&Watcher{quiet: time.Microsecond, release: func() {
		select {
		case done <- struct{}{}:
		default:
		}
	}, unmap: func() {}})
	for range 200 {
		w.Used()
		<-done // every use is followed by a release
	}
}

// TestAfterCollections collects garbage in a process that is not used: what that maps is unmapped.
func TestAfterCollections(t *testing.T) {
	released, unmapped := make(chan struct{}), make(chan struct{})
	watch(&Watcher{quiet: time.Microsecond, release: func() { close(released) }, unmap: func() { unmapped <- struct{}{} }})
	<-released
	for range 3 {
		for again := true; again; {
			runtime.GC()
			select {
			case <-unmapped:
				again = false
			default:
				runtime.Gosched()
			}
		}
	}
}

// TestNotAfterUses collects garbage in a process that was used: nothing is unmapped before it is
// idle again, and not too often then.
func TestNotAfterUses(t *testing.T) {
	released := make(chan struct{})
	w := watch(&Watcher{quiet: time.Microsecond, between: time.Hour, release: func() { released <- struct{}{} }, unmap: func() { t.Error("unmapped") }})
	for range 3 {
		<-released
		runtime.GC()
		runtime.GC() // the cleanups of the first have begun
		w.Used()
	}
	<-released
}
