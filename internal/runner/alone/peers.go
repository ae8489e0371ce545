//go:build unix

package alone

import (
	"context"
	"net"
	"time"

	"github.com/berthml/berth"
)

// peersTime is how long the names of the other nodes may take to be known: their pods may wait for
// room, or for their images.
const peersTime = 30 * time.Minute

// awaitPeers waits until all nodes of a task's job can be found by their names, or until hurry is
// closed. Frameworks give up sooner.
func awaitPeers(ctx context.Context, l berth.Launch, hurry <-chan struct{}) error {
	if l.Group == nil || len(l.Group.Nodes) < 2 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, peersTime)
	defer cancel()
	for _, n := range l.Group.Nodes {
		for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
			_, err := net.DefaultResolver.LookupHost(ctx, n.Address)
			if err == nil {
				break
			}
			select {
			case <-time.After(pause):
			case <-hurry:
				return nil
			case <-ctx.Done():
				return berth.Errorf(berth.Unavailable, "node %s of the job cannot be found by its name: %w", n.Address, err)
			}
		}
	}
	return nil
}
