package driver

import (
	"context"
	"errors"
	"sync"

	"github.com/berthml/berth"
)

// ObserveNodes observes several nodes at once, for a driver that has one for each. handle makes a
// node's handle one of that driver. The error is an [Unseen] where some could not be reached.
func ObserveNodes(ctx context.Context, nodes map[string]Driver, handle func(node string, h Handle) Handle) ([]Observed, error) {
	var mu sync.Mutex
	var all []Observed
	unseen := &Unseen{}
	var wait sync.WaitGroup
	for name, d := range nodes {
		wait.Go(func() {
			seen, err := d.Observe(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				unseen.Nodes, unseen.Err = append(unseen.Nodes, name), errors.Join(unseen.Err, err)
				return
			}
			for _, o := range seen {
				o.Node, o.Handle = name, handle(name, o.Handle)
				all = append(all, o)
			}
		})
	}
	wait.Wait()
	if len(unseen.Nodes) > 0 {
		unseen.Err = berth.Errorf(berth.Unavailable, "%w", unseen.Err)
		return all, unseen
	}
	return all, nil
}
