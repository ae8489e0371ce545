package blob

// Evict is evict, at once.
func (s *Store) Evict() error { return s.evict() }
