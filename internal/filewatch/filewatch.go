// Package filewatch tells when files grow, for many files at little cost: one inotify descriptor
// for all watches of a Watcher on Linux, polling of sizes elsewhere.
package filewatch

import "sync"

// A Watch is one file that is watched.
type Watch struct {
	// C receives after the file was written to. Notifications coalesce: one receive may stand for
	// many writes, and a receiver that reads to the end of the file after each one misses nothing.
	// It is never closed.
	C <-chan struct{}

	c     chan struct{}
	f     func() // called instead of sending, when set
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

// Add watches the file at path, which must exist. Writes that happen after Add returns are
// notified.
func (w *Watcher) Add(path string) (*Watch, error) {
	c := make(chan struct{}, 1)
	return w.add(path, &Watch{C: c, c: c})
}

// AddFunc is Add with a function that is called in place of the channel. It must return at once and
// call nothing of this package.
func (w *Watcher) AddFunc(path string, f func()) (*Watch, error) {
	return w.add(path, &Watch{f: f})
}

func (w *Watch) notify() {
	if w.f != nil {
		w.f()
		return
	}
	select {
	case w.c <- struct{}{}:
	default:
	}
}
