package control

import (
	"context"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/store"
)

// Limits says so when a limit of vCPUs ends, until ctx ends. It sleeps until the next does, or until somebody sets one.
func (c *Control) Limits(ctx context.Context) error {
	events, errs := c.follow(ctx, c.o.DB.Rev())
	due := time.Now()
	for {
		var ring <-chan time.Time
		var timer *time.Timer
		if !due.IsZero() {
			timer = time.NewTimer(min(max(0, time.Until(due)), budgetSleep)) // clocks are set
			ring = timer.C
		}
		select {
		case <-ctx.Done():
			<-errs
			return nil
		case err := <-errs:
			switch {
			case ctx.Err() != nil:
				return nil //nolint:nilerr // it is the reason
			case berth.CodeOf(err) != berth.Gone:
				return err
			}
			events, errs = c.follow(ctx, c.o.DB.Rev())
			due = time.Now()
		case batch := <-events:
			if slices.ContainsFunc(batch, func(e berth.Event) bool { return e.Type == berth.EventQuota }) {
				due = time.Now()
			}
		case <-ring:
			if !time.Now().Before(due) {
				due = c.expire(ctx)
			}
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// expire drops what has ended, and says when to look again.
func (c *Control) expire(ctx context.Context) (next time.Time) {
	err := c.o.DB.Update(ctx, func(tx *store.Tx) (err error) {
		next, err = quota.Expire(tx, tx.Now())
		return err
	})
	if err != nil {
		if ctx.Err() == nil {
			c.o.Log.Warn("limits were not looked at", "err", err)
		}
		return time.Now().Add(5 * time.Second)
	}
	return next
}
