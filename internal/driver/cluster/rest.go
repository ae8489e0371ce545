//go:build !windows

package cluster

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berthml/berth/internal/runner/host"
)

// StopIdle stops the hosts of the idle nodes in dir and removes their control groups, after a
// server has stopped. The next server starts them again when it calls them. Nodes on which
// something runs, such as an instance, are left alone; kept is their number.
func StopIdle(ctx context.Context, dir string) (kept int, err error) {
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
		if host.Busy(ctx, at) {
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
