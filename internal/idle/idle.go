// Package idle gives memory of a process that has nothing to do back to the system.
//
// What a server keeps resident is mostly pages of the program file: code that ran once, at the
// start or for the last request. Once nobody has asked for anything for a while, its heap is
// collected and returned, and those pages are unmapped. They stay in the kernel's page cache as
// long as it has room, and are mapped again, without a read from disk, when they are used.
package idle

import (
	"net/http"
	"runtime"
	"sync/atomic"
	"time"
)

// Quiet is how long a process must have been unused.
const Quiet = 5 * time.Second

// between is the shortest time between two releases of a process that stays unused.
const between = time.Minute

// A Watcher releases memory once a process has been unused for a while. Between uses it sets no
// timers: an idle process is woken once. But the runtime itself collects garbage every two minutes,
// and uses pages of the program for it; those are released again.
type Watcher struct {
	quiet, between time.Duration
	release, unmap func()
	uses           atomic.Uint64
	waiting        atomic.Bool // a timer is set
}

// Watch returns a watcher that releases memory of this process. The process counts as used now.
func Watch() *Watcher {
	return watch(&Watcher{quiet: Quiet, between: between, release: Release, unmap: unmap})
}

func watch(w *Watcher) *Watcher {
	w.Used()
	return w
}

// Used says that the process does something. A nil watcher releases nothing.
func (w *Watcher) Used() {
	if w == nil {
		return
	}
	w.uses.Add(1)
	if !w.waiting.Load() && w.waiting.CompareAndSwap(false, true) {
		w.wait()
	}
}

// wait looks again when the time is over. waiting is set.
func (w *Watcher) wait() {
	before := w.uses.Load()
	time.AfterFunc(w.quiet, func() {
		if w.uses.Load() != before {
			w.wait()
			return
		}
		w.waiting.Store(false)
		if w.uses.Load() != before { // used in between by one who saw the timer
			if w.waiting.CompareAndSwap(false, true) {
				w.wait()
			}
			return
		}
		w.release()
		w.afterCollection(before, time.Now())
	})
}

// afterCollection unmaps pages again after the next collection, if the process has not been used
// since.
func (w *Watcher) afterCollection(before uint64, last time.Time) {
	type garbage struct{ _ *byte } // with a pointer, so that it is an object of its own
	runtime.AddCleanup(&garbage{}, func(struct{}) {
		if w.uses.Load() != before {
			return
		}
		if now := time.Now(); now.Sub(last) >= w.between {
			w.unmap()
			last = now
		}
		w.afterCollection(before, last)
	}, struct{}{})
}

// Handler counts the requests of h as uses.
func (w *Watcher) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.Used()
		defer w.Used()
		h.ServeHTTP(rw, r)
	})
}
