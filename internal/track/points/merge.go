package points

import (
	"maps"
	"os"
	"slices"
)

const (
	// mergeAt is how many segments there are when some become one: a series that is in each of them is read in as many pieces.
	mergeAt = 12
	// mergeLeast is how many become one at least.
	mergeLeast = 6
	// mostPoints is how many points of a series are sorted anew in a merge; longer ones keep their chunks.
	mostPoints = 4 << 20
)

// window is the segments that are merged next: the newest ones, and before them such as are not much larger than all of those together.
// So a point is written again only a few times however many there are.
func window(sizes []int64) int {
	total := int64(0)
	for i := len(sizes) - 1; i >= 0; i-- {
		if n := len(sizes) - 1 - i; n >= mergeLeast && sizes[i] > 2*total {
			return i + 1
		}
		total += sizes[i]
	}
	return 0
}

// merge makes one segment of several if there are at least as many as most, and leaves out the points that nobody wants.
func (s *Set) merge(most int) error {
	s.merging.Lock()
	defer s.merging.Unlock()
	s.mu.RLock()
	if len(s.segments) < max(most, 1) {
		s.mu.RUnlock()
		return nil
	}
	sizes := make([]int64, len(s.segments))
	for i, seg := range s.segments {
		sizes[i] = seg.size
	}
	from := 0
	if most > 1 {
		from = window(sizes)
	}
	old := slices.Clone(s.segments[from:])
	s.mu.RUnlock()
	unwanted := s.unwanted()
	s.mu.RLock()
	parts := s.partsOf(old, unwanted)
	s.mu.RUnlock()

	into := span{old[0].span.first, old[len(old)-1].span.last}
	w, err := createSegment(s.segmentPath(into), s.o.NoSync)
	if err != nil {
		return err
	}
	for i := range parts {
		if err := parts[i].write(w); err != nil {
			w.discard()
			return err
		}
	}
	if s.o.Leads != nil && !s.o.Leads() {
		w.discard()
		return nil
	}
	seg, err := w.finish()
	if err != nil {
		return err
	}
	seg.span = into
	s.mu.Lock()
	s.segments = slices.Replace(s.segments, from, from+len(old), seg)
	for _, p := range parts {
		p.x.replace(p)
	}
	s.mu.Unlock()
	// Readers may be in the old files still: they are closed when the last of them has gone. One that cannot be removed now is when the
	// points are opened again.
	for _, o := range old {
		if o.span == into {
			continue
		}
		if err := os.Remove(s.segmentPath(o.span)); err != nil {
			s.o.Log.Warn("a merged segment of metrics is left over", "err", err)
		}
	}
	return nil
}

// A merged is a series in segments that are merged.
type merged struct {
	x      *series
	old    []chunk // of these segments
	now    []chunk
	wanted bool
}

// partsOf is the series that segments have points of. The caller holds mu.
func (s *Set) partsOf(segments []*segment, unwanted map[string]bool) []merged {
	of := make(map[*segment]bool, len(segments))
	for _, seg := range segments {
		of[seg] = true
	}
	var out []merged
	for name, o := range s.owners {
		for _, x := range o.series {
			m := merged{x: x, wanted: !unwanted[name]}
			for _, c := range x.chunks {
				if of[c.seg] {
					m.old = append(m.old, c)
				}
			}
			if m.old != nil {
				out = append(out, m)
			}
		}
	}
	return out
}

// write writes the points of a series as one chunk, or as they are where they are many.
func (m *merged) write(w *segmentWriter) error {
	if !m.wanted {
		return nil
	}
	total := 0
	for _, c := range m.old {
		total += int(c.count)
	}
	var points []Point
	var err error
	for _, c := range m.old {
		if points, err = c.read(points); err != nil {
			return err
		}
		if total > mostPoints {
			m.now = append(m.now, w.add(m.x, points))
			points = points[:0]
		}
	}
	if len(points) > 0 {
		m.now = append(m.now, w.add(m.x, tidy(points)))
	}
	return nil
}

// replace takes the chunks of a merge in place of the old ones. Only merges and compaction, which adds at the end, change chunks.
func (x *series) replace(m merged) {
	at := slices.IndexFunc(x.chunks, func(c chunk) bool { return c.seg == m.old[0].seg && c.at == m.old[0].at })
	x.chunks = slices.Concat(x.chunks[:at], m.now, x.chunks[at+len(m.old):])
	for _, c := range m.old {
		x.count -= int64(c.count)
	}
	for _, c := range m.now {
		x.count += int64(c.count)
	}
}

// unwanted are the owners whose points may go. Keep is not asked under a lock: it has locks of its own.
func (s *Set) unwanted() map[string]bool {
	if s.o.Keep == nil {
		return nil
	}
	s.mu.RLock()
	names := slices.Collect(maps.Keys(s.owners))
	s.mu.RUnlock()
	out := map[string]bool{}
	for _, name := range names {
		if !s.o.Keep(name) {
			out[name] = true
		}
	}
	return out
}

// Collect gives back the room of points that nobody wants any more, as far as they are in segments.
func (s *Set) Collect() error {
	unwanted := s.unwanted()
	if len(unwanted) == 0 {
		return nil
	}
	if err := s.merge(1); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range unwanted {
		o := s.owners[name]
		if o != nil && !slices.ContainsFunc(o.series, func(x *series) bool { return len(x.chunks)+len(x.sealed)+len(x.recent) > 0 || x.named == s.gen }) {
			delete(s.owners, name)
		}
	}
	return nil
}
