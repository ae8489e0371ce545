// Package filewatch tells when files grow, for many files at little cost: one inotify descriptor for all watches of a
// Watcher on Linux, polling of sizes elsewhere.
package filewatch

import "sync"

// A Watch is one file that is watched.
type Watch struct {
	// C receives after the file was written to. Notifications coalesce: one receive may stand for many writes, and a
	// receiver that reads to the end of the file after each one misses nothing. It is never closed.
	C <-chan struct{}

	c     chan struct{}
	close func(*Watch)
	once  sync.Once
}

// Chan is C, and nil for a nil Watch.
func (w *Watch) Chan() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.c
}

// Close ends the watch. It may be called twice, and on a nil Watch.
func (w *Watch) Close() {
	if w != nil {
		w.once.Do(func() { w.close(w) })
	}
}

func newWatch(closer func(*Watch)) *Watch {
	c := make(chan struct{}, 1)
	return &Watch{C: c, c: c, close: closer}
}

func (w *Watch) notify() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}
