package control

import (
	"context"
	"time"

	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/space"
	"github.com/berthml/berth/internal/store"
)

// Bytes nobody names are given a day in case an upload is still on its way.
const (
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
		c.rollUpMeters(ctx)
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

// daysAgo is the time some days ago; ok is false for 0 days, which is for ever.
func (c *Control) daysAgo(days int) (at time.Time, ok bool) {
	return c.o.DB.Now().Add(-time.Duration(days) * 24 * time.Hour), days > 0
}

// rollUpMeters replaces old meters by sums.
func (c *Control) rollUpMeters(ctx context.Context) {
	before, ok := c.daysAgo(c.o.KeepMeters)
	if !ok {
		return
	}
	n, err := cost.RollUp(ctx, c.o.DB, c.o.Local, before)
	if err != nil && ctx.Err() == nil {
		c.o.Log.Warn("meters were not rolled up", "err", err)
	}
	if n > 0 {
		c.o.Log.Info("meters rolled up", "meters", n, "before", before.UTC().Format(time.DateOnly))
	}
}

// pruneEvents deletes old events: the history that explain and events show.
func (c *Control) pruneEvents(ctx context.Context) {
	before, ok := c.daysAgo(c.o.KeepEvents)
	if !ok {
		return
	}
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
