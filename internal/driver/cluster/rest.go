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

// Rest ends the hosts of the nodes below dir and removes their groups. The nodes are there again when a server calls them. It is for a
// server that has ended and had nothing to run.
func Rest(ctx context.Context, dir string) error {
	all, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range all {
		at := filepath.Join(dir, e.Name())
		r, bad := load(filepath.Join(at, recordFile))
		if bad != nil {
			continue // half made or half removed: whoever starts next goes on with it
		}
		if e := host.Shutdown(ctx, at); e != nil {
			err = errors.Join(err, e)
			continue
		}
		err = errors.Join(err, r.Groups.Remove())
	}
	return err
}
