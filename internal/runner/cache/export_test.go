package cache

// BeforeEviction has f called when a tree is about to be moved out of the way.
func (c *Cache) BeforeEviction(f func()) { c.evicting = f }
