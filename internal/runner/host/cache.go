package host

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/berthml/berth/internal/runner/cache"
)

// tidyEvery is how often the cache is looked at.
const tidyEvery = time.Hour

// tidyCache evicts what nobody uses, until ctx ends: a host may get no tasks for long.
func (w *worker) tidyCache(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if at, err := cacheDir(w.dir); err != nil || !there(at) {
			continue // no task needed one
		}
		if c := w.trees(); c != nil {
			c.Evict()
		}
	}
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// cacheDir is where the cache of a host is.
func cacheDir(dir string) (string, error) {
	s, err := loadSettings(dir)
	return cmp.Or(s.Cache, filepath.Join(dir, "cache")), err
}

// openCache opens the machine's cache of what tasks read. Without one each task fetches for itself.
func openCache(dir string, log *slog.Logger) *cache.Cache {
	s, err := loadSettings(dir)
	if err != nil {
		log.Error("code and inputs are not cached", "err", err)
		return nil
	}
	// Root mounts trees read-only; permissions mean nothing to it.
	c, err := cache.Open(cmp.Or(s.Cache, filepath.Join(dir, "cache")), cache.Options{Bytes: s.CacheBytes, Protect: os.Geteuid() != 0, Log: log})
	if err != nil {
		log.Error("code and inputs are not cached", "err", err)
		return nil
	}
	return c
}
