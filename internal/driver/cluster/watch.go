//go:build !windows

package cluster

import (
	"context"
	"sync"

	"github.com/berthml/berth/internal/runner/host"
)

// watch waits for the end of a node's host: a connection on which nothing comes. It costs nothing
// while it waits.
type watch struct {
	mu     sync.Mutex
	cancel context.CancelFunc // of the goroutine, nil when there is none
	again  chan struct{}      // asks it to connect again
}

// begin starts watching unless somebody does.
func (w *watch) begin(n *node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	again := make(chan struct{}, 1)
	w.cancel, w.again = cancel, again
	n.d.group.Go(func() {
		for ctx.Err() == nil {
			if host.WaitWorker(ctx, n.dir) && ctx.Err() == nil {
				n.d.hint()
				continue // it may be there again already
			}
			select { // there is none: whoever observes starts it
			case <-again:
			case <-ctx.Done():
			}
		}
	})
}

func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil {
		w.cancel()
		w.cancel = nil
	}
}

// attend tells the watcher that the host is there.
func (n *node) attend() {
	w := &n.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.again <- struct{}{}: // nil when nobody watches
	default:
	}
}

// Watch is [driver.Watcher.Watch]. It hints when the host of a node ends, which no runner can
// report.
func (d *Driver) Watch(ctx context.Context) (<-chan struct{}, error) {
	if _, _, err := d.scan(); err != nil {
		return nil, err
	}
	c := make(chan struct{}, 1)
	d.mu.Lock()
	d.hints[c] = true
	d.watching++
	for _, n := range d.nodes {
		n.watch.begin(n)
	}
	d.mu.Unlock()
	context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.hints, c)
		if d.watching--; d.watching == 0 {
			for _, n := range d.nodes {
				n.watch.end()
			}
		}
		close(c)
	})
	return c, nil
}

// hint tells everybody who watches.
func (d *Driver) hint() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.hints {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
