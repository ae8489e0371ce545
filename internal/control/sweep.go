package control

import (
	"context"
	"time"

	"github.com/berthml/berth/internal/space"
	"github.com/berthml/berth/internal/store"
)

// What is kept, and for how long. Events of finished jobs are history that explain and events show;
// bytes nobody names are given a day in case an upload is still on its way.
const (
	keepEvents = 30 * 24 * time.Hour
	keepBytes  = 24 * time.Hour
	sweepEvery = time.Hour
	sweepBatch = 5000
)

// Sweep removes what nobody needs, once an hour, until ctx ends. It begins with a pause so that a
// start is quick.
func (c *Control) Sweep(ctx context.Context) error {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		c.pruneEvents(ctx)
		if err := space.Retain(ctx, c.o.DB, c.o.Blobs, c.o.Locator, c.o.KeepDays, c.o.Log); err != nil && ctx.Err() == nil {
			c.o.Log.Warn("what old jobs left was not cleaned", "err", err)
		}
		if st, err := c.o.Blobs.GC(ctx, keepBytes); err != nil && ctx.Err() == nil {
			c.o.Log.Warn("bytes were not swept", "err", err)
		} else if err == nil {
			c.o.Log.Debug("bytes swept", "stats", st)
		}
	}
}

func (c *Control) pruneEvents(ctx context.Context) {
	before := c.o.DB.Now().Add(-keepEvents)
	for {
		n := 0
		err := c.o.DB.Update(ctx, func(tx *store.Tx) (err error) {
			n, err = tx.PruneEvents(before, sweepBatch)
			return err
		})
		if err != nil {
			if ctx.Err() == nil {
				c.o.Log.Warn("events were not pruned", "err", err)
			}
			return
		}
		if n < sweepBatch {
			return
		}
	}
}
