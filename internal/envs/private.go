package envs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/berthml/berth"
)

// Owned says whether dir holds a complete environment made by Own.
func Owned(dir string) bool {
	_, err := readMarker(dir)
	return err == nil
}

// Own makes a virtual environment in dir that belongs to somebody: it is not in the cache, shares
// no file with it, and may be changed. packages are requirements; the programs' output goes to the
// file logPath. What an earlier call left incomplete is made again, what is complete is left as it
// is.
func (c *Cache) Own(ctx context.Context, dir string, packages []string, logPath string, progress func(string)) error {
	if Owned(dir) {
		return nil
	}
	start := time.Now()
	r, err := parse(berth.LaunchEnv{Pip: strings.Join(packages, "\n")})
	if err != nil {
		return err
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil { // a build whose caller was killed ends first
		return err
	}
	if err := clearDir(dir); err != nil {
		return fmt.Errorf("removing an incomplete environment: %w", err)
	}
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	b := &builder{cache: c, lock: lock, dir: dir, log: log, progress: progress, vars: []string{"UV_LINK_MODE=copy"}}
	m := marker{Built: start.UTC()}
	if m.Warnings, err = b.venv(ctx, r); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("building environment: %w", context.Cause(ctx))
		}
		return explain(err, filepath.Base(logPath))
	}
	m.Python, m.Packages, m.Took = pythonVersion(dir), b.installed, time.Since(start)
	if err := m.complete(dir); err != nil {
		return fmt.Errorf("completing environment: %w", err)
	}
	go func() { // until it is done, or the machine is off: then it is made again
		if err := m.settle(dir); err != nil {
			c.log.Warn("environment not on disk yet", "dir", dir, "err", err)
		}
	}()
	return nil
}
