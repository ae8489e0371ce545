package envs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// An environment's lock is one file with an flock: exclusive while it is built or removed, shared
// while it is used. The kernel drops it with the last process that has the file open, so a crash
// needs no clean-up.

func (c *Cache) openLock(hash string) (*os.File, error) {
	f, err := os.OpenFile(c.path("locks", hash), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking environment: %w", err)
	}
	return f, nil
}

// tryLock takes the lock without waiting, or turns the one held into how; it may lose the one held
// when it returns false.
func tryLock(f *os.File, how int) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		default:
			return false, fmt.Errorf("locking %s: %w", f.Name(), err)
		}
	}
}

// lockWait takes the lock of that name exclusively; waiting is called when somebody else holds it.
// Closing the file frees it.
func (c *Cache) lockWait(ctx context.Context, name string, waiting func()) (*os.File, error) {
	f, err := c.openLock(name)
	if err != nil {
		return nil, err
	}
	var wait time.Duration
	for {
		ok, err := tryLock(f, syscall.LOCK_EX)
		if ok {
			return f, nil
		}
		if wait == 0 && err == nil {
			waiting()
		}
		if err == nil {
			err = pause(ctx, &wait)
		}
		if err != nil {
			f.Close()
			return nil, err
		}
	}
}

func unlock(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

// pause waits a little longer each time, up to 100 ms; it returns the context's error when that
// ends.
func pause(ctx context.Context, d *time.Duration) error {
	*d = min(max(2**d, time.Millisecond), 100*time.Millisecond)
	t := time.NewTimer(*d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
