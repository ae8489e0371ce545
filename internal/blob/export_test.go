package blob

// Evict is evict, at once.
func (s *Store) Evict() error { return s.evict() }

// Chunk is chunk.
func Chunk(names []string) int { return chunk(len(names), func(i int) string { return names[i] }) }
