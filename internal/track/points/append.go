package points

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
)

// A group is what several callers append with one sync.
type group struct {
	frame []byte // encoded, with room for the header in front
	added []added
	last  int64         // timestamp of the last point, from which the next is counted
	lead  chan struct{} // one of the callers is told to write it
	done  chan struct{}
	err   error
}

type added struct {
	x *series
	p Point
}

// Records within a frame.
const (
	recordName  = 1 // id, owner, key
	recordPoint = 2 // id, timestamp, step, value
)

// Append adds points. When it returns nil they are durable, and every later read sees them.
func (s *Set) Append(entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	g := s.next
	if g == nil {
		g = &group{frame: make([]byte, frameHeader, frameHeader+64+24*len(entries)), lead: make(chan struct{}, 1), done: make(chan struct{})}
		s.next = g
	}
	var x *series
	for i := range entries {
		e := &entries[i]
		if x == nil || x.key != e.Key || x.owner.name != e.Owner {
			x = s.at(e.Owner, e.Key)
		}
		g.encode(x, e.Point, s.gen)
		g.added = append(g.added, added{x, e.Point})
	}
	if s.busy {
		s.mu.Unlock()
		select {
		case <-g.done:
			return g.err
		case <-g.lead:
		}
		s.mu.Lock()
	}
	s.busy = true
	s.next = nil
	s.mu.Unlock()

	err := s.commit(g)

	s.mu.Lock()
	if err == nil {
		for _, a := range g.added {
			s.add(a.x, a.p)
		}
		if t := s.tellings(g.added); len(t) > 0 {
			s.mu.Unlock()
			s.tell(t)
			s.mu.Lock()
		}
	} else {
		s.gen++ // names may be lost with what failed: they are written again
	}
	if err == nil && s.journal.size >= s.o.JournalSize {
		s.rotate()
	}
	if s.next != nil {
		if err != nil {
			// Names that the next group counts on were in this one.
			s.next.rename(s.gen)
		}
		s.next.lead <- struct{}{}
	} else {
		s.busy = false
		s.idle.Broadcast()
	}
	s.mu.Unlock()
	g.err = err
	close(g.done)
	return err
}

// rename encodes a group again, with a name for each of its series.
func (g *group) rename(gen uint64) {
	g.frame, g.last = g.frame[:frameHeader], 0
	for _, a := range g.added {
		g.encode(a.x, a.p, gen)
	}
}

// encode adds a point to the frame, and before it the name of its series where this journal has not
// seen it yet.
func (g *group) encode(x *series, p Point, gen uint64) {
	b := g.frame
	if x.named != gen {
		x.named = gen
		b = append(b, recordName)
		b = binary.AppendUvarint(b, x.id)
		b = appendText(b, x.owner.name)
		b = appendText(b, x.key)
	}
	b = append(b, recordPoint)
	b = binary.AppendUvarint(b, x.id)
	b = binary.AppendVarint(b, p.Timestamp-g.last)
	b = binary.AppendVarint(b, p.Step)
	g.frame = binary.LittleEndian.AppendUint64(b, math.Float64bits(p.Value))
	g.last = p.Timestamp
}

// commit writes a group. Only the one who leads calls it.
func (s *Set) commit(g *group) error {
	if s.journal == nil {
		j, err := createJournal(s.path(s.number, "log"), s.o.NoSync)
		for ; errors.Is(err, fs.ErrExist); j, err = createJournal(s.path(s.number, "log"), s.o.NoSync) {
			s.number++ // it is of a process that does not know yet that it has the points no more
		}
		if err != nil {
			return err
		}
		s.journal = j
	}
	return s.journal.write(g.frame)
}

func appendText(b []byte, t string) []byte {
	b = binary.AppendUvarint(b, uint64(len(t)))
	return append(b, t...)
}

// Close waits for what is under way. Nothing is lost without it.
func (s *Set) Close() error {
	s.closing.Store(true)
	s.mu.Lock()
	s.closed = true
	for s.busy {
		s.idle.Wait()
	}
	for _, list := range s.watches {
		for _, w := range list {
			w.finish(ErrClosed)
		}
	}
	s.watches = nil
	s.mu.Unlock()
	s.compacted.Wait()
	s.merging.Lock()
	defer s.merging.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.journal != nil {
		err = s.journal.close()
		s.journal = nil
	}
	for _, seg := range s.segments {
		seg.f.Close()
	}
	s.segments = nil
	return err
}
