//go:build !windows

package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/host"
)

// hold waits until nobody else makes, removes or starts a node, in this process or, where there are
// several servers, in another. A server that leads no more is refused, and what it had begun before
// is over when the next one has the node: between the look at the term and the end of what is done
// nobody comes.
func (d *Driver) hold(ctx context.Context, name string) (release func(), err error) {
	free, err := d.holdHere(ctx, name)
	if err != nil {
		return nil, err
	}
	term := berth.TermOf(ctx)
	if term == 0 {
		return free, nil
	}
	if err := d.lockDir(); err != nil {
		free()
		return nil, berth.Errorf(berth.Unavailable, "making the directory of nodes: %w", err)
	}
	unlock, err := d.lock(ctx, name)
	if err != nil {
		free()
		return nil, err
	}
	release = func() { unlock(); free() }
	if _, err := (&host.Terms{Dir: d.c.Dir}).Admit(term, berth.TermProof(ctx)); err != nil { // read again: another process may have noted a later one
		release()
		return nil, err
	}
	return release, nil
}

// holdHere is hold for this process.
func (d *Driver) holdHere(ctx context.Context, name string) (release func(), err error) {
	for {
		d.mu.Lock()
		c := d.held[name]
		if c == nil {
			c = make(chan struct{})
			d.held[name] = c
			d.mu.Unlock()
			return func() {
				d.mu.Lock()
				delete(d.held, name)
				d.mu.Unlock()
				close(c)
			}, nil
		}
		d.mu.Unlock()
		select {
		case <-c:
		case <-ctx.Done():
			return nil, busy(ctx, name)
		}
	}
}

func busy(ctx context.Context, name string) error {
	return berth.Errorf(berth.Unavailable, "node %s is being created or removed: %w", name, context.Cause(ctx))
}

// locksDir, in the directory of nodes, has a file to lock for each node. No node is called that.
const locksDir = ".locks"

// lockDir makes the directory, and not what is above that of nodes: a home that was moved away must
// not be made again.
func (d *Driver) lockDir() error {
	for _, dir := range []string{d.c.Dir, filepath.Join(d.c.Dir, locksDir)} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// lock keeps other processes from a node; the kernel unlocks it when this one ends.
func (d *Driver) lock(ctx context.Context, name string) (unlock func(), err error) {
	path := filepath.Join(d.c.Dir, locksDir, name+".lock")
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, berth.Errorf(berth.Unavailable, "locking node %s: %w", name, err)
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && same(f, path) {
			return func() {
				if _, err := os.Lstat(filepath.Join(d.c.Dir, name)); errors.Is(err, os.ErrNotExist) {
					os.Remove(path) // the lock of a node that was removed; whoever waits for it looks again
				}
				f.Close()
			}, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, berth.Errorf(berth.Unavailable, "locking node %s: %w", name, err)
		}
		if err != nil && !pause(ctx, wait) {
			return nil, busy(ctx, name)
		}
	}
}

// same says whether an open file is the one at a path still.
func same(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}
