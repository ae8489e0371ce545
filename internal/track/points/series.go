package points

// An owner has series.
type owner struct {
	name   string
	series []*series
	byKey  map[string]*series // once there are many
}

const manySeries = 16

// A key of some series.
type key struct {
	text   string
	series int
}

// What is counted in bytes, rather too much.
const (
	memoryOfSeries = 360
	memoryOfChunk  = 64
	memoryOfKey    = 120 // and its text
)

// A series is the points under one key. Its slices and chunks only grow, but for what compaction
// moves from one to the other.
type series struct {
	id    uint64 // names it in journals
	key   string
	owner *owner

	latest Point
	count  int64
	added  uint64 // points, since the set was opened; it never falls
	named  uint64 // the generation of the journal in which it was named last
	follow *follow
	noted  bool // it is in the list of follow

	chunks []chunk // in segments
	sealed []Point // of older journals
	recent []Point // of the journal that is written
}

func (o *owner) find(key string) *series {
	if o.byKey != nil {
		return o.byKey[key]
	}
	for _, x := range o.series {
		if x.key == key {
			return x
		}
	}
	return nil
}

// at is the series of an owner under a name, made where it is not there. The caller holds mu.
func (s *Set) at(of, name string) *series {
	o := s.owners[of]
	if o == nil {
		o = &owner{name: of}
		s.owners[of] = o
	}
	if x := o.find(name); x != nil {
		return x
	}
	s.nextID++
	x := &series{id: s.nextID, key: s.use(name), owner: o, follow: s.followed[name]}
	o.series = append(o.series, x)
	if o.byKey == nil && len(o.series) > manySeries {
		o.byKey = make(map[string]*series, 2*manySeries)
		for _, y := range o.series {
			o.byKey[y.key] = y
		}
	} else if o.byKey != nil {
		o.byKey[name] = x
	}
	return x
}

// use is the text of a key that one more series has. The caller holds mu.
func (s *Set) use(name string) string {
	k := s.keys[name]
	if k == nil {
		k = &key{text: name}
		s.keys[name] = k
		s.memory.Add(memoryOfKey + int64(len(name)))
	}
	k.series++
	s.memory.Add(memoryOfSeries)
	return k.text
}

// setChunks gives a series other chunks. The caller holds mu.
func (s *Set) setChunks(x *series, chunks []chunk) {
	s.memory.Add(memoryOfChunk * int64(len(chunks)-len(x.chunks)))
	x.chunks = chunks
}

// forget removes an owner. The caller holds mu.
func (s *Set) forget(o *owner) {
	delete(s.owners, o.name)
	for _, x := range o.series {
		s.setChunks(x, nil)
		s.memory.Add(-memoryOfSeries)
		if k := s.keys[x.key]; k.series > 1 {
			k.series--
		} else {
			delete(s.keys, x.key)
			s.memory.Add(-memoryOfKey - int64(len(x.key)))
		}
	}
}

// add notes a point that is durable. The caller holds mu.
func (s *Set) add(x *series, p Point) {
	n := len(x.recent)
	if n > 0 && same(x.recent[n-1], p) {
		return // the commonest repetition
	}
	if n == 0 {
		s.touched = append(s.touched, x)
	}
	x.recent = append(x.recent, p)
	x.added++
	if x.follow != nil && !x.noted && (x.count == 0 || newer(p, x.latest)) {
		x.note()
	}
	x.sum(p, 1)
}

// sum takes count points into the summary, of which latest is the latest.
func (x *series) sum(latest Point, count int64) {
	if x.count == 0 || newer(latest, x.latest) {
		x.latest = latest
	}
	x.count += count
}
