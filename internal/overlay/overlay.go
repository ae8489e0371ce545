// Package overlay has maps that can be changed on trial: a fork of a map is changed without the
// map, and then either joined into it or dropped. Forking costs nothing, however large the map is.
package overlay

import "iter"

// Map is a map, or a fork of one. The zero Map is empty and can be used. It is not safe for
// concurrent use, and while a Map has a fork only the fork may be changed.
type Map[K comparable, V any] struct {
	base    map[K]V
	fork    bool            // base is another Map's
	changes map[K]change[V] // of a fork
	added   int             // by how many the fork has more than base
}

// change is a value of a fork, or that it has none.
type change[V any] struct {
	value   V
	deleted bool
}

// Fork is m as it is now, to be changed on trial. m must not be a fork itself.
func (m *Map[K, V]) Fork() Map[K, V] {
	if m.fork {
		panic("overlay: fork of a fork")
	}
	return Map[K, V]{base: m.base, fork: true}
}

// Join makes m what a fork of it has become, and the fork a Map that must not be used any more.
func (m *Map[K, V]) Join(fork *Map[K, V]) {
	for k, c := range fork.changes {
		if c.deleted {
			m.Delete(k)
		} else {
			m.Set(k, c.value)
		}
	}
	*fork = Map[K, V]{}
}

// Get is the value of a key, and whether there is one.
func (m *Map[K, V]) Get(k K) (V, bool) {
	if len(m.changes) > 0 {
		if c, ok := m.changes[k]; ok {
			return c.value, !c.deleted
		}
	}
	v, ok := m.base[k]
	return v, ok
}

// Own reports whether a fork has set the value of a key: then nobody else has that value.
func (m *Map[K, V]) Own(k K) bool {
	c, ok := m.changes[k]
	return ok && !c.deleted
}

// Set gives a key a value.
func (m *Map[K, V]) Set(k K, v V) {
	if !m.fork {
		if m.base == nil {
			m.base = map[K]V{}
		}
		m.base[k] = v
		return
	}
	if _, ok := m.Get(k); !ok {
		m.added++
	}
	m.change(k, change[V]{value: v})
}

// Delete takes a key out, if it is there.
func (m *Map[K, V]) Delete(k K) {
	if !m.fork {
		delete(m.base, k)
		return
	}
	if _, ok := m.Get(k); ok {
		m.added--
		m.change(k, change[V]{deleted: true})
	}
}

func (m *Map[K, V]) change(k K, c change[V]) {
	if m.changes == nil {
		m.changes = map[K]change[V]{}
	}
	m.changes[k] = c
}

// Len is how many keys there are.
func (m *Map[K, V]) Len() int { return len(m.base) + m.added }

// All are the keys and their values, in no order. What is set or deleted meanwhile may be among
// them or not, as with a map.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for k, v := range m.base {
			if c, ok := m.changes[k]; ok {
				if v = c.value; c.deleted {
					continue
				}
			}
			if !yield(k, v) {
				return
			}
		}
		for k, c := range m.changes {
			if _, ok := m.base[k]; !ok && !c.deleted && !yield(k, c.value) {
				return
			}
		}
	}
}

// Keys are the keys, in no order.
func (m *Map[K, V]) Keys() iter.Seq[K] {
	return func(yield func(K) bool) {
		for k := range m.All() {
			if !yield(k) {
				return
			}
		}
	}
}

// Changed are the values that a fork has set, by their keys.
func (m *Map[K, V]) Changed() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for k, c := range m.changes {
			if !c.deleted && !yield(k, c.value) {
				return
			}
		}
	}
}
