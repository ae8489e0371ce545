package attach

import (
	"sync/atomic"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// FailWatch makes the gate's next reading of events fail, as if the database were away, and returns
// what is closed then.
func (g *Gate) FailWatch(err error) <-chan struct{} {
	failed := make(chan struct{})
	var once atomic.Bool
	g.next = func(w *store.Watch) ([]berth.Event, error) {
		if once.CompareAndSwap(false, true) {
			close(failed)
			return nil, err
		}
		return w.Next()
	}
	return failed
}
