package cache

import "time"

// BeforeEviction has f called when a tree is about to be moved out of the way.
func (c *Cache) BeforeEviction(f func()) { c.evicting = f }

// TendEvery has work on a place show so often.
func (c *Cache) TendEvery(d time.Duration) { c.tending = d }

// SweepContent has contents that no tree has go, as an eviction does.
func (c *Cache) SweepContent() { c.sweepContent() }
