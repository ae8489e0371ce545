package envs

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// sweep removes what crashes left: environments without a marker that nobody builds, and
// half-removed ones.
func (c *Cache) sweep() {
	for _, t := range readDir(c.path("trash")) {
		if err := os.RemoveAll(c.path("trash", t)); err != nil {
			c.log.Warn("environment remains not removed", "dir", t, "err", err)
		}
	}
	for _, t := range readDir(c.path("tmp")) {
		// Another process may be at work in one; nothing in them lives for a day.
		if info, err := os.Stat(c.path("tmp", t)); err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			_ = os.RemoveAll(c.path("tmp", t))
		}
	}
	for _, hash := range readDir(c.path("envs")) {
		if _, err := os.Stat(c.path("envs", hash, markerName)); err == nil {
			continue
		}
		c.remove(hash, func() bool {
			_, err := os.Stat(c.path("envs", hash, markerName))
			return err != nil
		})
	}
}

// remove removes an environment that nobody uses or builds, if still says so once it is locked.
func (c *Cache) remove(hash string, still func() bool) bool {
	lock, err := c.openLock(hash)
	if err != nil {
		return false
	}
	defer lock.Close()
	if ok, err := tryLock(lock, syscall.LOCK_EX); err != nil || !ok || !still() {
		return false
	}
	// Out of the way at once; the slow part needs no lock.
	trash, err := os.MkdirTemp(c.path("trash"), hash+"-")
	if err != nil {
		return false
	}
	if err := os.Rename(c.path("envs", hash), filepath.Join(trash, "env")); err != nil {
		os.Remove(trash)
		return false
	}
	unlock(lock)
	if err := os.RemoveAll(trash); err != nil {
		c.log.Warn("environment remains not removed", "dir", trash, "err", err)
	}
	return true
}

// evict makes the cache fit its limit: downloaded packages go when they take more than a quarter,
// then the least recently used environments. What is in use stays.
func (c *Cache) evict(ctx context.Context) {
	if c.o.MaxBytes < 0 {
		return
	}
	type entry struct {
		hash  string
		bytes int64
		used  time.Time
	}
	var all []entry
	var total int64
	for _, hash := range readDir(c.path("envs")) {
		m, err := readMarker(c.path("envs", hash))
		if err != nil {
			continue
		}
		info, err := os.Stat(c.path("envs", hash, markerName))
		if err != nil {
			continue
		}
		all = append(all, entry{hash, m.Bytes, info.ModTime()})
		total += m.Bytes
	}
	downloads := unlinkedUse(c.path("uv-cache"))
	if total+downloads > c.o.MaxBytes && downloads > c.o.MaxBytes/4 {
		downloads = c.cleanDownloads(ctx)
	}
	if total+downloads <= c.o.MaxBytes {
		return
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.hash, b.hash)) })
	for _, e := range all {
		if total+downloads <= c.o.MaxBytes {
			break
		}
		removed := c.remove(e.hash, func() bool {
			info, err := os.Stat(c.path("envs", e.hash, markerName))
			return err == nil && info.ModTime().Equal(e.used) // not used meanwhile
		})
		if removed {
			c.log.Info("environment evicted", "hash", e.hash, "bytes", e.bytes)
			total -= e.bytes
		}
	}
	// The packages of a removed environment are still among the downloads.
	if total+unlinkedUse(c.path("uv-cache")) > c.o.MaxBytes {
		c.cleanDownloads(ctx)
	}
}

// cleanDownloads lets uv empty its cache, and returns what is left; uv waits for builds that use
// it.
func (c *Cache) cleanDownloads(ctx context.Context) int64 {
	uv, err := c.uv(ctx, func(string) {})
	if err != nil || os.Getenv("UV_CACHE_DIR") != "" { // that one is not ours
		return unlinkedUse(c.path("uv-cache"))
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, uv, "cache", "clean")
	cmd.Env = c.uvEnv()
	cmd.Dir = c.dir
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		c.log.Warn("downloaded packages not removed", "err", err, "output", tail(string(out), 3))
	}
	return unlinkedUse(c.path("uv-cache"))
}
