package control

import (
	"context"
	"time"

	"github.com/berthml/berth"
)

// longestSleep is the longest time without a look at the clock: clocks are set, and machines sleep.
const longestSleep = time.Hour

// watchLoop calls look at once, at the time that look returned (never, if that is zero), and when
// events make it worthwhile: news says from when on. It ends with ctx.
func (c *Control) watchLoop(ctx context.Context, news func([]berth.Event) (at time.Time, worth bool), look func() time.Time) error {
	events, errs := c.follow(ctx, c.o.DB.Rev())
	due := c.o.DB.Now()
	for {
		var ring <-chan time.Time
		var timer *time.Timer
		if !due.IsZero() {
			timer = time.NewTimer(min(max(0, due.Sub(c.o.DB.Now())), longestSleep))
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
			due = c.o.DB.Now()
		case batch := <-events:
			if clockSet(batch) {
				due = c.o.DB.Now()
			}
			if at, worth := news(batch); worth && (due.IsZero() || at.Before(due)) {
				due = at
			}
		case <-ring:
			if !c.o.DB.Now().Before(due) {
				due = look()
			}
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// follow passes events on until ctx ends. The error comes after the last of them.
func (c *Control) follow(ctx context.Context, from berth.Rev) (<-chan []berth.Event, <-chan error) {
	events, errs := make(chan []berth.Event), make(chan error, 1)
	go func() {
		for w := c.o.DB.Watch(ctx, from); ; {
			batch, err := w.Next()
			if err != nil {
				errs <- err
				return
			}
			select {
			case events <- batch:
			case <-ctx.Done():
				errs <- ctx.Err()
				return
			}
		}
	}()
	return events, errs
}
