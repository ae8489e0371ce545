//go:build !windows

package cluster

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/host"
)

// Rest ends the hosts of the nodes below dir and removes their groups. The nodes are there again when a server calls them. It is for a
// server that has ended and had no jobs. Nodes on which something runs all the same, such as an instance's, are kept as they are; it
// says how many.
func Rest(ctx context.Context, dir string) (kept int, err error) {
	all, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	for _, e := range all {
		at := filepath.Join(dir, e.Name())
		r, bad := load(filepath.Join(at, recordFile))
		if bad != nil {
			continue // half made or half removed: whoever starts next goes on with it
		}
		if busy(ctx, at) {
			kept++
			continue
		}
		if e := host.Shutdown(ctx, at); e != nil {
			err = errors.Join(err, e)
			continue
		}
		err = errors.Join(err, r.Groups.Remove())
	}
	return kept, err
}

// busy says whether the host of a node has a task that is not over. One that does not answer is treated as idle: to end it waits for it too.
func busy(ctx context.Context, dir string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c := host.NewClient(dir)
	defer c.Close()
	tasks, err := c.Tasks(ctx)
	return err == nil && slices.ContainsFunc(tasks, func(s host.Status) bool { return s.State != berth.TaskDone })
}
