package host

import (
	"log/slog"
	"os"
	"path/filepath"

	"github.com/berthml/berth/internal/runner/cache"
)

// openCache opens the machine's cache of what tasks read. Without one each task fetches for itself.
func openCache(dir string, log *slog.Logger) *cache.Cache {
	s, err := loadSettings(dir)
	if err != nil {
		log.Error("code and inputs are not cached", "err", err)
		return nil
	}
	at := s.Cache
	if at == "" {
		at = filepath.Join(dir, "cache")
	}
	// Root mounts trees read-only; permissions mean nothing to it.
	c, err := cache.Open(at, cache.Options{Bytes: s.CacheBytes, Protect: os.Geteuid() != 0, Log: log})
	if err != nil {
		log.Error("code and inputs are not cached", "err", err)
		return nil
	}
	return c
}
