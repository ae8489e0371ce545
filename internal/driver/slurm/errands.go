package slurm

import (
	"context"
	"sync"
	"time"
)

// errands are what a driver does later and by itself.
type errands struct {
	// after does something after a pause, unless they end before. Its context is over when they
	// end.
	after func(pause time.Duration, do func(context.Context))
	// end calls off what has not begun, and waits for the rest.
	end func()
}

func newErrands() errands {
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex // nothing is added once they end
	var all sync.WaitGroup
	after := func(pause time.Duration, do func(context.Context)) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		all.Go(func() {
			timer := time.NewTimer(pause)
			defer timer.Stop()
			select {
			case <-timer.C:
				do(ctx)
			case <-ctx.Done():
			}
		})
	}
	return errands{after: after, end: func() {
		mu.Lock()
		cancel()
		mu.Unlock()
		all.Wait()
	}}
}
