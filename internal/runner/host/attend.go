package host

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/cache"
)

// WaitWorker waits until the worker of dir has ended or ctx is done. It returns false if there is
// no worker.
func WaitWorker(ctx context.Context, dir string) bool {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socketPath(dir))
	if err != nil {
		return false
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	_, _ = c.Read(make([]byte, 1)) // nothing was asked, so nothing comes
	return true
}

// RemoveDir removes the directory of a host that has ended, and everything of it: the
// write-protected parts of it too, and its socket, wherever that is.
func RemoveDir(dir string) error {
	if p := socketPath(dir); filepath.Dir(p) != dir {
		if err := os.Remove(p); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return cache.RemoveAll(dir)
}

// HasContainers reports whether the host of dir has, had or is about to have tasks in containers.
func HasContainers(dir string) bool {
	b, _ := os.ReadFile(filepath.Join(dir, "journal"))
	for _, sign := range []string{`,"box":"`, `"image":"`, `"build":"`} {
		if bytes.Contains(b, []byte(sign)) {
			return true
		}
	}
	return false
}

// Busy says whether the host of dir has a task that is not over. One that does not answer is
// treated as idle: to end it waits for it too.
func Busy(ctx context.Context, dir string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c := NewClient(dir)
	defer c.Close()
	tasks, err := c.Tasks(ctx)
	return err == nil && slices.ContainsFunc(tasks, func(s Status) bool { return s.State != berth.TaskDone })
}
