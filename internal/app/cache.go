package app

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/berthml/berth/internal/runner/cache"
)

// tidyEvery is how often the cache of code and inputs on this machine is looked at.
const tidyEvery = time.Hour

// tidyCache evicts what nobody uses from the cache of this machine, until ctx ends. Runners do so
// too, but none may come for long, and links in the cache keep contents that the server let go.
func (a *App) tidyCache(ctx context.Context) error {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := a.tidyCacheOnce(); err != nil {
			a.log.Warn("the cache of code and data was not tidied", "err", err)
		}
	}
}

func (a *App) tidyCacheOnce() error {
	at := a.dataCache()
	if _, err := os.Stat(at.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c, err := cache.Open(at.Dir, cache.Options{Bytes: at.Bytes, Log: a.log})
	if err != nil {
		return err
	}
	defer c.Close()
	if n := c.Evict(); n > 0 {
		a.log.Info("cached folders that nobody used evicted", "folders", n)
	}
	return nil
}
