package points

import (
	"os"
	"slices"
)

const (
	// mergeAt is how many segments there are when some become one: a series that is in each of them
	// is read in as many pieces.
	mergeAt = 12
	// mergeLeast is how many become one at least.
	mergeLeast = 6
)

// window is the segments that are merged next: the newest ones, and before them such as are not
// much larger than all of those together. So a point is written again only a few times however many
// there are.
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

// merge makes one segment of the newest ones if there are many.
func (s *Set) merge() error {
	s.merging.Lock()
	defer s.merging.Unlock()
	s.mu.RLock()
	var old []*segment
	if len(s.segments) >= mergeAt {
		sizes := make([]int64, len(s.segments))
		for i, seg := range s.segments {
			sizes[i] = seg.size
		}
		old = slices.Clone(s.segments[window(sizes):])
	}
	s.mu.RUnlock()
	if old == nil {
		return nil
	}
	_, err := s.rewrite(old, nil)
	return err
}

// rewrite makes one segment of some that follow each other, without the points of some owners. It
// gives up, and says so, when the set is closed or is another process's meanwhile. The caller holds
// merging.
func (s *Set) rewrite(old []*segment, without map[string]bool) (done bool, err error) {
	s.mu.RLock()
	parts := s.partsOf(old, without)
	s.mu.RUnlock()
	into := span{old[0].span.first, old[len(old)-1].span.last}
	w, err := createSegment(s.segmentPath(into), s.o.NoSync)
	if err != nil {
		return false, err
	}
	for i := range parts {
		if s.ends() {
			w.discard()
			return false, nil
		}
		if err := parts[i].write(w, s.lose(parts[i].x)); err != nil {
			w.discard()
			return false, err
		}
	}
	if s.ends() {
		w.discard()
		return false, nil
	}
	seg, err := w.finish()
	if err != nil {
		return false, err
	}
	seg.span = into
	s.mu.Lock()
	from := slices.Index(s.segments, old[0])
	s.segments = slices.Replace(s.segments, from, from+len(old), seg)
	for _, p := range parts {
		s.replace(p)
	}
	s.mu.Unlock()
	// Readers may be in the old files still: they are closed when the last of them has gone. One
	// that cannot be removed now is when the points are opened again.
	for _, o := range old {
		if o.span == into {
			continue
		}
		if err := os.Remove(s.segmentPath(o.span)); err != nil {
			s.o.Log.Warn("a merged segment of metrics is left over", "err", err)
		}
	}
	return true, nil
}

// ends says whether what goes on in the background has to end.
func (s *Set) ends() bool { return s.closing.Load() || s.o.Leads != nil && !s.o.Leads() }

// A merged is a series in segments that are merged.
type merged struct {
	x      *series
	old    []chunk // of these segments
	now    []chunk
	wanted bool
}

// partsOf is the series that segments have points of. The caller holds mu.
func (s *Set) partsOf(segments []*segment, without map[string]bool) []merged {
	of := make(map[*segment]bool, len(segments))
	for _, seg := range segments {
		of[seg] = true
	}
	var out []merged
	for name, o := range s.owners {
		for _, x := range o.series {
			m := merged{x: x, wanted: !without[name]}
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

// write writes the points of a series. It has the chunks of it in memory that overlap, which of
// segments with oldSegmentMark are all.
func (m *merged) write(w *segmentWriter, lose func(chunk) error) error {
	if !m.wanted {
		return nil
	}
	r := newReader(lose, m.old)
	p := make([]Point, min(r.Most(), maxChunk))
	for {
		n, err := r.Next(p)
		if n == 0 || err != nil {
			return err
		}
		m.now = append(m.now, w.add(m.x, p[:n])...)
	}
}

// replace takes the chunks of a merge in place of the old ones. Only merges and compaction, which
// adds at the end, change chunks.
func (s *Set) replace(m merged) {
	x := m.x
	at := slices.IndexFunc(x.chunks, func(c chunk) bool { return c.seg == m.old[0].seg && c.at == m.old[0].at })
	s.setChunks(x, slices.Concat(x.chunks[:at], m.now, x.chunks[at+len(m.old):]))
	for _, c := range m.old {
		x.count -= int64(c.count)
	}
	for _, c := range m.now {
		x.count += int64(c.count)
	}
}

// Drop removes all points of owners. done is false where some of them cannot be removed now: they
// are being written, or the set is being closed.
func (s *Set) Drop(owners []string) (done bool, err error) {
	s.merging.Lock()
	defer s.merging.Unlock()
	drop := make(map[string]bool, len(owners))
	for _, name := range owners {
		drop[name] = true
	}
	if !s.flush(drop) {
		return false, nil
	}
	for {
		seg := s.segmentWith(drop)
		if seg == nil {
			break
		}
		if done, err := s.rewrite([]*segment{seg}, drop); err != nil || !done {
			return false, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range drop {
		o := s.owners[name]
		if o != nil && slices.ContainsFunc(o.series, func(x *series) bool { return len(x.chunks)+len(x.sealed)+len(x.recent) > 0 || x.named == s.gen }) {
			return false, nil // somebody logs to it
		}
		if o != nil {
			s.forget(o)
		}
	}
	return true, nil
}

// flush brings points of owners that are in the journal only into a segment. It says whether they
// all are.
func (s *Set) flush(owners map[string]bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	inJournal := func() bool {
		for name := range owners {
			if o := s.owners[name]; o != nil && slices.ContainsFunc(o.series, func(x *series) bool { return len(x.sealed)+len(x.recent) > 0 || x.named == s.gen }) {
				return true
			}
		}
		return false
	}
	compacting := func() bool { return s.sealed && !s.failed && !s.closed }
	for compacting() { // as it is after a start
		s.idle.Wait()
	}
	if !inJournal() {
		return true
	}
	if s.busy || s.sealed || s.closed || s.journal == nil {
		return false
	}
	s.rotate()
	for compacting() {
		s.idle.Wait()
	}
	return !inJournal()
}

// segmentWith is a segment that has points of one of the owners, nil when there is none.
func (s *Set) segmentWith(owners map[string]bool) *segment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name := range owners {
		if o := s.owners[name]; o != nil {
			for _, x := range o.series {
				if len(x.chunks) > 0 {
					return x.chunks[0].seg
				}
			}
		}
	}
	return nil
}
