// Package filewatch tells when files grow, for many files at little cost: one inotify descriptor for all watches of a
// Watcher on Linux, polling of sizes elsewhere.
package filewatch

import "sync"

// A Watch is one file that is watched.
type Watch struct {
	// C receives after the file was written to. Notifications coalesce: one receive may stand for many writes, and a
	// receiver that reads to the end of the file after each one misses nothing. C is never closed.
	C <-chan struct{}

	c     chan struct{}
	close func(*Watch)
	once  sync.Once
}

// Close ends the watch. It may be called twice.
func (w *Watch) Close() { w.once.Do(func() { w.close(w) }) }

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
