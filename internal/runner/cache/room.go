package cache

import (
	"math"

	"github.com/berthml/berth"
)

// The cache makes room on the disk by what nobody uses: before something comes that would not fit,
// and when the disk was full although it should have fitted.

const (
	// share is the part of the disk that the cache takes where nothing else is said.
	share = 5
	// usual is what it takes where the size of the disk is not known.
	usual = 20 << 30
	// spareShare is the part of the disk that is left to others, and mostSpare bounds it.
	spareShare = 20
	mostSpare  = 10 << 30
)

// limit is how much is kept.
func (c *Cache) limit() int64 {
	if c.o.Bytes > 0 {
		return c.o.Bytes
	}
	if _, size, ok := disk(c.dir); ok {
		return size / share
	}
	return usual
}

// spare says whether the disk has room for so many bytes, and some more for others.
func (c *Cache) spare(bytes int64) bool {
	free, size, ok := disk(c.dir)
	return !ok || bytes < size && free >= bytes+min(size/spareShare, mostSpare)
}

// makeRoom evicts, where it helps, until so many bytes fit.
func (c *Cache) makeRoom(bytes int64) {
	if bytes <= 0 || c.spare(bytes) {
		return
	}
	free, _, _ := disk(c.dir)
	if _, total := c.list(); free+total < bytes {
		return // it never fits
	}
	c.evict(func(kept, int64) bool { return !c.spare(bytes) })
}

// afterFull evicts after the disk was full while so many bytes came, and says whether it is worth
// another attempt. Where there seems to be room, something else has an end: files, or a quota.
func (c *Cache) afterFull(err error, bytes int64) bool {
	if !berth.IsDiskFull(err) {
		return false
	}
	c.sweepTemps()
	enough := c.spare(bytes)
	n := c.evict(func(kept, int64) bool { return enough || !c.spare(bytes) })
	if n > 0 {
		c.o.Log.Info("the disk was full: folders that nobody uses were evicted", "folders", n)
	}
	return n > 0
}

// MakeRoom evicts all that nobody uses where a full disk is the reason of an error, and says
// whether it is worth another attempt: for what comes to the disk beside the cache.
func (c *Cache) MakeRoom(err error) bool { return c.afterFull(err, math.MaxInt64) }
