//go:build !linux

package filewatch

import (
	"os"
	"sync"
	"time"
)

// interval is how often sizes are looked at.
const interval = 100 * time.Millisecond

// A Watcher watches files. Its methods may be called concurrently.
type Watcher struct {
	stop, done chan struct{}

	mu     sync.Mutex
	files  map[*Watch]*file
	closed bool
}

type file struct {
	path string
	size int64
}

// New makes a Watcher and the goroutine that polls for it; Close ends both.
func New() (*Watcher, error) {
	w := &Watcher{stop: make(chan struct{}), done: make(chan struct{}), files: map[*Watch]*file{}}
	go w.poll()
	return w, nil
}

func (w *Watcher) add(path string, x *Watch) (*Watch, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, os.ErrClosed
	}
	x.close = w.remove
	w.files[x] = &file{path: path, size: info.Size()}
	return x, nil
}

// Close ends every watch and waits for the poller.
func (w *Watcher) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	w.mu.Unlock()
	close(w.stop)
	<-w.done
	return nil
}

func (w *Watcher) remove(x *Watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.files, x)
}

func (w *Watcher) poll() {
	defer close(w.done)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
		w.mu.Lock()
		for x, f := range w.files {
			if info, err := os.Stat(f.path); err == nil && info.Size() != f.size {
				f.size = info.Size()
				x.notify()
			}
		}
		w.mu.Unlock()
	}
}
