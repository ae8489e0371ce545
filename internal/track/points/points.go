// Package points keeps the points of metrics: series of (timestamp, step, value) in a directory of
// append-only files.
//
// Below the directory:
//
//	N.log   a journal: what was appended, in the order it came; the newest is written to
//	N.seg   a segment: the points of the journals up to N, a column after the other, series by series
//	M-N.seg a segment that those from M to N were merged into
//
// Append returns when its points are on the disk to stay; concurrent callers share one wait for it.
// A crash at any instant leaves at most a torn end of the newest journal, which nobody was told of
// and which Open cuts off. A point that comes again is the same point: histories are sets, so that
// a request may be repeated.
package points

import (
	"cmp"
	"errors"
	"log/slog"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Point is one measurement.
type Point struct {
	Timestamp int64 // milliseconds since 1970
	Step      int64
	Value     float64
}

// An Entry is a point of the series that an owner (a run, a model) has under a key.
type Entry struct {
	Owner, Key string
	Point
}

// A Summary is what is known of a series without reading it.
type Summary struct {
	Key    string
	Latest Point // the greatest by step, then timestamp, then value
	Count  int64 // points kept; repeated ones may count twice until they are compacted
}

// Options are the choices of Open.
type Options struct {
	// JournalSize is how large a journal grows before its points become a segment; 0 is 8 MiB.
	JournalSize int64
	// NoSync gives up durability for speed: for tests only.
	NoSync bool
	// Leads says whether this process is still the one that has the points; nil is yes. One that
	// had them before may not know yet that it has them no more. What it still writes nobody
	// counts on.
	Leads func() bool
	Log   *slog.Logger
}

const defaultJournalSize = 8 << 20

// A Set is the points in one directory. It is safe for concurrent use; one process has a directory
// open at a time.
type Set struct {
	dir string
	o   Options

	mu        sync.RWMutex
	owners    map[string]*owner
	keys      map[string]*key // each once
	memory    atomic.Int64
	followed  map[string]*follow
	touched   []*series // those with recent points
	aside     []*series // those with sealed points
	nextID    uint64
	gen       uint64              // of the journal file: series are named in it before their first point
	next      *group              // collects what the next sync will make durable
	busy      bool                // somebody writes
	watches   map[string][]*Watch // by owner
	closed    bool
	journal   *journal
	number    uint64 // of the journal
	sealed    bool   // points of older journals are in memory and not in a segment yet
	segments  []*segment
	idle      *sync.Cond // on mu: nobody writes
	compacted sync.WaitGroup
	failed    bool // the last journal did not become a segment
	failedAt  time.Time
	pause     time.Duration // after which that is tried again
	merging   sync.Mutex    // one merges at a time
	closing   atomic.Bool
}

// ErrClosed is what Append returns after Close.
var ErrClosed = errors.New("the points are closed")

// Memory is about how much memory the series take, without their points.
func (s *Set) Memory() int64 { return s.memory.Load() }

// Latest is a summary of each series of an owner, sorted by key.
func (s *Set) Latest(name string) []Summary {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o := s.owners[name]
	if o == nil {
		return nil
	}
	out := make([]Summary, 0, len(o.series))
	for _, x := range o.series {
		if x.count > 0 {
			out = append(out, Summary{Key: x.key, Latest: x.latest, Count: x.count})
		}
	}
	slices.SortFunc(out, func(a, b Summary) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// Last is the summary of one series.
func (s *Set) Last(name, key string) (Summary, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if o := s.owners[name]; o != nil {
		if x := o.find(key); x != nil && x.count > 0 {
			return Summary{Key: x.key, Latest: x.latest, Count: x.count}, true
		}
	}
	return Summary{}, false
}

// A State is the points that a series has at a time: as long as it is the same, they are. It means
// something to the set that it came from only.
type State struct{ Series, Added uint64 }

// State is the state of a series and how many points it has at most.
func (s *Set) State(name, key string) (State, int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if o := s.owners[name]; o != nil {
		if x := o.find(key); x != nil {
			return State{x.id, x.added}, x.count
		}
	}
	return State{}, 0
}

// Size is how many points an owner has, and how many bytes they take up in segments.
func (s *Set) Size(name string) (points, bytes int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if o := s.owners[name]; o != nil {
		for _, x := range o.series {
			points += x.count
			for _, c := range x.chunks {
				bytes += int64(c.size)
			}
		}
	}
	return points, bytes
}

// A View is a set under one lock, for looking at many series.
type View struct{ s *Set }

// View runs fn with a view, which must not outlive it.
func (s *Set) View(fn func(View)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	fn(View{s})
}

// Latest is the latest point of a series.
func (v View) Latest(name, key string) (Point, bool) {
	if o := v.s.owners[name]; o != nil {
		if x := o.find(key); x != nil && x.count > 0 {
			return x.latest, true
		}
	}
	return Point{}, false
}

// Each calls fn with the key and the latest point of each series of an owner, in no order.
func (v View) Each(name string, fn func(key string, latest Point)) {
	o := v.s.owners[name]
	if o == nil {
		return
	}
	for _, x := range o.series {
		if x.count > 0 {
			fn(x.key, x.latest)
		}
	}
}

// tidy sorts points and leaves each once.
func tidy(p []Point) []Point {
	if !slices.IsSortedFunc(p, compare) {
		slices.SortStableFunc(p, compare)
	}
	return slices.CompactFunc(p, same)
}

func same(a, b Point) bool {
	return a.Timestamp == b.Timestamp && a.Step == b.Step && math.Float64bits(a.Value) == math.Float64bits(b.Value)
}

// compare orders a history; NaN comes after numbers.
func compare(a, b Point) int {
	if c := cmp.Compare(a.Timestamp, b.Timestamp); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Step, b.Step); c != 0 {
		return c
	}
	an, bn := math.IsNaN(a.Value), math.IsNaN(b.Value)
	switch {
	case an && bn:
		return cmp.Compare(math.Float64bits(a.Value), math.Float64bits(b.Value))
	case an:
		return 1
	case bn:
		return -1
	}
	if c := cmp.Compare(a.Value, b.Value); c != 0 {
		return c
	}
	return cmp.Compare(math.Float64bits(a.Value), math.Float64bits(b.Value)) // 0 and -0
}

// newer says whether a is the latest of the two: by step, timestamp, value; NaN counts as 0, as
// MLflow has it.
func newer(a, b Point) bool {
	c := cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Timestamp, b.Timestamp), cmp.Compare(zeroed(a.Value), zeroed(b.Value)))
	return c > 0
}

func zeroed(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

// Remove deletes the directory of a set that is not open.
func Remove(dir string) error { return os.RemoveAll(dir) }
