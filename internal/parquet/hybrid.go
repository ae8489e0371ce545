package parquet

import "encoding/binary"

// hybrid reads levels, indexes and booleans: runs of one value, and values packed into bits.
type hybrid struct {
	b      []byte
	width  int
	left   uint64 // of the run
	packed []byte // of the run; nil if it is of one value
	bit    int
	value  uint32
}

func (h *hybrid) next() (uint32, error) {
	for h.left == 0 {
		if err := h.begin(); err != nil {
			return 0, err
		}
	}
	h.left--
	if h.packed == nil {
		return h.value, nil
	}
	at, shift := h.bit>>3, h.bit&7
	h.bit += h.width
	var bits uint64
	for i := range min(5, len(h.packed)-at) {
		bits |= uint64(h.packed[at+i]) << (8 * i)
	}
	return uint32(bits >> shift & (1<<h.width - 1)), nil //nolint:gosec // of at most 32 bits
}

func (h *hybrid) begin() error {
	head, n := binary.Uvarint(h.b)
	if n <= 0 || head>>1 == 0 {
		return damaged("a page ends before its values")
	}
	h.b = h.b[n:]
	if head&1 == 0 {
		size := (h.width + 7) / 8
		if size > len(h.b) {
			return damaged("a page ends before its values")
		}
		var four [4]byte
		copy(four[:], h.b[:size])
		h.left, h.packed, h.value, h.b = head>>1, nil, binary.LittleEndian.Uint32(four[:]), h.b[size:]
		return nil
	}
	groups := head >> 1
	if h.width == 0 {
		h.left, h.packed, h.value = min(groups, 1<<40)*8, nil, 0
		return nil
	}
	if groups > uint64(len(h.b)) { // each has width bytes; what is over is padding that some leave out
		groups = uint64(len(h.b))
	}
	size := min(int(groups)*h.width, len(h.b))               //nolint:gosec // at most len(b)
	h.left, h.bit = min(groups*8, uint64(size*8/h.width)), 0 //nolint:gosec // a size
	h.packed, h.b = h.b[:size:size], h.b[size:]
	return nil
}

// hybridWriter writes what hybrid reads.
type hybridWriter struct {
	width   int
	out     []byte
	packed  []byte // groups of eight values that are not a run
	buffer  [8]uint32
	n       int // in buffer
	last    uint32
	repeats uint64 // of last
}

func (w *hybridWriter) reset(width int) {
	*w = hybridWriter{width: width, out: w.out[:0], packed: w.packed[:0]}
}

func (w *hybridWriter) add(v uint32) {
	if v == w.last && w.repeats > 0 {
		w.repeats++
		if w.repeats >= 8 { // the buffer has the seven before, and nothing else
			w.n = 0
			return
		}
	} else {
		if w.repeats >= 8 {
			w.run()
		}
		w.last, w.repeats = v, 1
	}
	w.buffer[w.n] = v
	if w.n++; w.n == 8 {
		w.pack()
	}
}

// pack adds the buffer to the packed values.
func (w *hybridWriter) pack() {
	var bits uint64
	have := 0
	for _, v := range w.buffer {
		bits |= uint64(v) << have
		for have += w.width; have >= 8; have -= 8 {
			w.packed = append(w.packed, byte(bits))
			bits >>= 8
		}
	}
	w.n, w.repeats, w.buffer = 0, 0, [8]uint32{}
}

// endPacked writes the packed values.
func (w *hybridWriter) endPacked() {
	if len(w.packed) > 0 {
		w.out = binary.AppendUvarint(w.out, uint64(len(w.packed)/w.width)<<1|1) //nolint:gosec // a size
		w.out, w.packed = append(w.out, w.packed...), w.packed[:0]
	}
}

// run writes a run of one value.
func (w *hybridWriter) run() {
	w.endPacked()
	w.out = binary.AppendUvarint(w.out, w.repeats<<1)
	for i := 0; i < w.width; i += 8 {
		w.out = append(w.out, byte(w.last>>i))
	}
	w.repeats, w.n = 0, 0
}

func (w *hybridWriter) size() int { return len(w.out) + len(w.packed) }

// end returns what has been written.
func (w *hybridWriter) end() []byte {
	if w.repeats >= 8 {
		w.run()
	} else if w.n > 0 {
		w.pack()
	}
	w.endPacked()
	return w.out
}
