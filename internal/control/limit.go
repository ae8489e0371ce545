package control

import (
	"context"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/store"
)

// Limits says so when a limit of vCPUs ends, until ctx ends. It sleeps until the next does, or
// until somebody sets one.
func (c *Control) Limits(ctx context.Context) error {
	return c.watchLoop(ctx, func(batch []berth.Event) (time.Time, bool) {
		return c.o.DB.Now(), slices.ContainsFunc(batch, func(e berth.Event) bool { return e.Type == berth.EventQuota })
	}, func() time.Time { return c.expire(ctx) })
}

// expire drops what has ended, and says when to look again.
func (c *Control) expire(ctx context.Context) (next time.Time) {
	err := c.o.DB.Update(ctx, func(tx *store.Tx) (err error) {
		next, err = quota.Expire(tx, tx.Now())
		return err
	})
	if err != nil {
		if ctx.Err() == nil {
			c.o.Log.Warn("limits were not checked", "err", err)
		}
		return c.o.DB.Now().Add(5 * time.Second)
	}
	return next
}
