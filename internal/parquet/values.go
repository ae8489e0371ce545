package parquet

import (
	"encoding/binary"
	"math/bits"
)

// Encodings of values.
const (
	plain           = 0
	plainDictionary = 2
	rle             = 3
	deltaPacked     = 5
	deltaLengths    = 6
	deltaStrings    = 7
	dictionaryRLE   = 8
	splitStreams    = 9
)

// maxValue limits the bytes of one value.
const maxValue = 64 << 20

var errShort = damaged("a page ends before its values")

// values reads the values of a page one by one. The bytes of a value, which are those of the plain
// encoding without a length, are good until the next one is read.
type values interface{ next() ([]byte, error) }

// newValues reads the values of a page that are not indexes of a dictionary.
func newValues(l *leaf, encoding int64, b []byte) (values, error) {
	size := l.size()
	switch {
	case encoding == plain && l.physical == typeBoolean:
		return &plainBooleans{b: b}, nil
	case encoding == plain && size > 0:
		return &fixed{b: b, size: size}, nil
	case encoding == plain:
		return &lengthFirst{b: b}, nil
	case encoding == rle && l.physical == typeBoolean:
		if len(b) < 4 {
			return nil, errShort
		}
		return &booleans{runs: hybrid{b: b[4:], width: 1}}, nil
	case encoding == deltaPacked && (l.physical == typeInt32 || l.physical == typeInt64):
		d, err := newDeltas(b)
		return &integers{deltas: d, size: size}, err
	case encoding == deltaLengths && l.physical == typeBytes:
		return newLengths(b)
	case encoding == deltaStrings && (l.physical == typeBytes || l.physical == typeFixed):
		return newPrefixed(b)
	case encoding == splitStreams && size > 0 && l.physical != typeBoolean:
		return &streams{b: b, count: len(b) / size, value: make([]byte, size)}, nil
	}
	return nil, damaged("encoding %d of column %s is not known for its type", encoding, l.element.bytes(elementName))
}

type fixed struct {
	b    []byte
	size int
}

func (v *fixed) next() (out []byte, err error) {
	if len(v.b) < v.size {
		return nil, errShort
	}
	out, v.b = v.b[:v.size], v.b[v.size:]
	return out, nil
}

type lengthFirst struct{ b []byte }

func (v *lengthFirst) next() (out []byte, err error) {
	if len(v.b) < 4 || uint64(binary.LittleEndian.Uint32(v.b)) > uint64(len(v.b)-4) {
		return nil, errShort
	}
	end := 4 + int(binary.LittleEndian.Uint32(v.b))
	out, v.b = v.b[4:end], v.b[end:]
	return out, nil
}

type plainBooleans struct {
	b   []byte
	bit int
	out [1]byte
}

func (v *plainBooleans) next() ([]byte, error) {
	if v.bit>>3 >= len(v.b) {
		return nil, errShort
	}
	v.out[0] = v.b[v.bit>>3] >> (v.bit & 7) & 1
	v.bit++
	return v.out[:], nil
}

type booleans struct {
	runs hybrid
	out  [1]byte
}

func (v *booleans) next() ([]byte, error) {
	x, err := v.runs.next()
	v.out[0] = byte(x & 1)
	return v.out[:], err
}

// streams has the first byte of every value, then the second of every value, and so on.
type streams struct {
	b         []byte
	count, at int
	value     []byte
}

func (v *streams) next() ([]byte, error) {
	if v.at >= v.count {
		return nil, errShort
	}
	for i := range v.value {
		v.value[i] = v.b[i*v.count+v.at]
	}
	v.at++
	return v.value, nil
}

// deltas are integers, each as its difference from the one before.
type deltas struct {
	b          []byte
	block      int // values in a block
	mini       int // values in a miniblock
	left       uint64
	value      int64
	first      bool
	smallest   int64  // difference in the block
	widths     []byte // of the miniblocks that are left of the block
	packed     []byte // of the miniblock
	width, bit int
	inMini     int // values left in the miniblock
}

func newDeltas(b []byte) (*deltas, error) {
	d := &deltas{first: true}
	var head [3]uint64
	for i := range head {
		n, k := binary.Uvarint(b)
		if k <= 0 {
			return nil, errShort
		}
		head[i], b = n, b[k:]
	}
	value, k := binary.Varint(b)
	if k <= 0 || head[0] == 0 || head[0] > 1<<20 || head[0]%128 != 0 || head[1] == 0 || head[1] > head[0] || head[0]/head[1]%8 != 0 || head[2] > 1<<31 {
		return nil, errShort
	}
	d.block, d.mini, d.left, d.value, d.b = int(head[0]), int(head[0]/head[1]), head[2], value, b[k:] //nolint:gosec // bounded above
	return d, nil
}

func (d *deltas) next() (int64, error) {
	if d.left == 0 {
		return 0, errShort
	}
	d.left--
	if d.first {
		d.first = false
		return d.value, nil
	}
	if d.inMini == 0 {
		if err := d.begin(); err != nil {
			return 0, err
		}
	}
	d.inMini--
	d.value += d.smallest + int64(unpack(d.packed, d.bit, d.width)) //nolint:gosec // it wraps around
	d.bit += d.width
	return d.value, nil
}

// begin takes the next miniblock.
func (d *deltas) begin() error {
	if len(d.widths) == 0 {
		smallest, k := binary.Varint(d.b)
		count := d.block / d.mini
		if k <= 0 || len(d.b)-k < count {
			return errShort
		}
		d.smallest, d.widths, d.b = smallest, d.b[k:k+count], d.b[k+count:]
	}
	d.width, d.bit, d.inMini = int(d.widths[0]), 0, d.mini
	d.widths = d.widths[1:]
	size := d.width * d.mini / 8
	if d.width > 64 || size > len(d.b) {
		return errShort
	}
	d.packed, d.b = d.b[:size], d.b[size:]
	return nil
}

// end is what comes after the integers.
func (d *deltas) end() ([]byte, error) {
	for d.left > 0 {
		if _, err := d.next(); err != nil {
			return nil, err
		}
	}
	return d.b, nil
}

// unpack is width bits of b.
func unpack(b []byte, bit, width int) (out uint64) {
	for have := 0; have < width; {
		at, shift := bit>>3, bit&7
		take := min(8-shift, width-have)
		out |= uint64(b[at]>>shift&(1<<take-1)) << have
		have, bit = have+take, bit+take
	}
	return out
}

type integers struct {
	*deltas
	size int
	out  [8]byte
}

func (v *integers) next() ([]byte, error) {
	n, err := v.deltas.next()
	binary.LittleEndian.PutUint64(v.out[:], uint64(n)) //nolint:gosec // its bits
	return v.out[:v.size], err
}

// lengths are strings: the lengths of all, then all of them.
type lengths struct {
	sizes *deltas
	b     []byte
}

func newLengths(b []byte) (*lengths, error) {
	sizes, err := newDeltas(b)
	if err != nil {
		return nil, err
	}
	ahead := *sizes
	rest, err := ahead.end()
	return &lengths{sizes: sizes, b: rest}, err
}

func (v *lengths) next() (out []byte, err error) {
	n, err := v.sizes.next()
	if err != nil || n < 0 || n > int64(len(v.b)) {
		return nil, errShort
	}
	out, v.b = v.b[:n], v.b[n:]
	return out, nil
}

// prefixed are strings, each as how much of the one before it begins with, and the rest.
type prefixed struct {
	sizes    *deltas
	suffixes *lengths
	last     []byte
}

func newPrefixed(b []byte) (*prefixed, error) {
	sizes, err := newDeltas(b)
	if err != nil {
		return nil, err
	}
	ahead := *sizes
	rest, err := ahead.end()
	if err != nil {
		return nil, err
	}
	suffixes, err := newLengths(rest)
	return &prefixed{sizes: sizes, suffixes: suffixes}, err
}

func (v *prefixed) next() ([]byte, error) {
	n, err := v.sizes.next()
	if err != nil || n < 0 || n > int64(len(v.last)) {
		return nil, errShort
	}
	suffix, err := v.suffixes.next()
	if err != nil {
		return nil, err
	}
	if int(n)+len(suffix) > maxValue {
		return nil, damaged("a value is larger than %d MB", maxValue>>20)
	}
	v.last = append(v.last[:n], suffix...)
	return v.last, nil
}

// dictionary is the values that indexes stand for.
type dictionary struct {
	b     []byte
	size  int      // of each value, or 0
	ends  []uint32 // of values of different sizes
	count int
}

func newDictionary(l *leaf, b []byte, count int64) (*dictionary, error) {
	d := &dictionary{b: b, size: l.size()}
	if l.physical == typeBoolean || count < 0 || count > int64(len(b)) {
		return nil, damaged("a dictionary has the wrong number of values")
	}
	d.count = int(count)
	if d.size > 0 {
		if len(b)/d.size < d.count {
			return nil, errShort
		}
		return d, nil
	}
	v := &lengthFirst{b: b}
	for range d.count {
		if _, err := v.next(); err != nil {
			return nil, err
		}
		d.ends = append(d.ends, uint32(len(b)-len(v.b))) //nolint:gosec // of a page
	}
	return d, nil
}

// value is the one of an index that is known to be of the dictionary.
func (d *dictionary) value(i uint32) []byte {
	switch {
	case d.size > 0:
		return d.b[int(i)*d.size : (int(i)+1)*d.size]
	case i == 0:
		return d.b[4:d.ends[0]]
	}
	return d.b[d.ends[i-1]+4 : d.ends[i]]
}

// indexes are values in a dictionary.
type indexes struct {
	runs hybrid
	dict *dictionary
}

func newIndexes(b []byte, d *dictionary) (*indexes, error) {
	if d == nil {
		return nil, damaged("a page has indexes, and its column no dictionary")
	}
	if len(b) == 0 { // of a page without values
		b = []byte{0}
	}
	if b[0] > 32 {
		return nil, damaged("an index has %d bits", b[0])
	}
	return &indexes{runs: hybrid{b: b[1:], width: int(b[0])}, dict: d}, nil
}

// index is the next index, which is one of the dictionary.
func (v *indexes) index() (uint32, error) {
	i, err := v.runs.next()
	if err == nil && int64(i) >= int64(v.dict.count) {
		return 0, damaged("an index is not in the dictionary of its column")
	}
	return i, err
}

func (v *indexes) next() ([]byte, error) {
	i, err := v.index()
	if err != nil {
		return nil, err
	}
	return v.dict.value(i), nil
}

// width is how many bits the levels up to a highest have.
func width(highest int) int { return bits.Len(uint(highest)) } //nolint:gosec // not negative
