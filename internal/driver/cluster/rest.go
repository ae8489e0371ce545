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

// Rest ends the hosts of the nodes below dir and removes their groups. The nodes are there again
// when a server calls them. It is for a server that has ended and had no jobs. Nodes on which
// something runs all the same, such as an instance's, are kept as they are; it says how many.
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
