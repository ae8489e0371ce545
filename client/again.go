package client

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/berthml/berth"
)

const (
	// retries is how often a request that found the server unavailable is made in all.
	retries = 4
	// restartTime is how long a server is waited for that is stopping, or that was there and
	// refuses connections.
	restartTime = 20 * time.Second
	// firstTime is how long a server is waited for that has not answered yet.
	firstTime = 3 * time.Second
)

// comeBack is the error of a request that was refused, before anything was done, by a server that
// asks to try again soon.
type comeBack struct{ err *berth.Error }

func (e *comeBack) Error() string { return e.err.Error() }

func (e *comeBack) Unwrap() error { return e.err }

// persist calls try until it succeeds, fails for good, or has failed for long enough.
func (c *Client) persist(ctx context.Context, method string, try func() error) error {
	begun := time.Now()
	for attempt := 1; ; attempt++ {
		err := try()
		if err == nil {
			c.met.Store(true)
			return nil
		}
		if !c.again(method, err, attempt, time.Since(begun)) {
			return err
		}
		var lost *Unreachable
		if errors.As(err, &lost) && lost.dial && !c.met.Load() && c.cfg.Start != nil { // it ended since Open has found it
			if err := c.cfg.Start(ctx); err != nil {
				return err
			}
		}
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
}

// again says whether a request is repeated after err. A POST that may have arrived is not.
func (c *Client) again(method string, err error, attempt int, spent time.Duration) bool {
	var lost *Unreachable
	var soon *comeBack
	switch {
	case errors.As(err, &soon):
		return spent < restartTime
	case errors.As(err, &lost) && lost.dial:
		return NotRunning(lost.Err) && (spent < firstTime || c.met.Load() && spent < restartTime)
	}
	return berth.CodeOf(err) == berth.Unavailable && method != http.MethodPost && attempt < retries
}

// pause waits before another attempt: 50 ms, doubling, at most 2 s.
func pause(ctx context.Context, attempt int) error {
	t := time.NewTimer(min(2*time.Second, 50*time.Millisecond<<min(attempt-1, 10)))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
