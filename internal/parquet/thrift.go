package parquet

import (
	"encoding/binary"
	"slices"

	"github.com/berthml/berth"
)

// The metadata of a Parquet file is in Thrift's compact protocol. Structs are taken apart one level
// at a time, and the bytes of their fields are kept: what this package does not know is copied.

// Types of fields in the compact protocol.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
	thriftUUID   = 13
)

// maxNesting is how deep structs and lists may be in one another.
const maxNesting = 64

var errThrift = damaged("its metadata cannot be read")

// damaged refuses a file.
func damaged(format string, args ...any) error {
	return berth.Errorf(berth.Invalid, "it is not a sound Parquet file: %w", berth.Errorf(berth.Invalid, format, args...))
}

// field is a field of a struct, with the bytes of its value.
type field struct {
	id    int16
	kind  byte
	value []byte
}

// record is a struct: its fields in the order of their ids.
type record []field

// parseRecord takes a struct from the beginning of b, and returns how long it is.
func parseRecord(b []byte) (r record, size int, err error) {
	var last int16
	for {
		if size >= len(b) {
			return nil, 0, errThrift
		}
		head := b[size]
		size++
		if head == 0 {
			return r, size, nil
		}
		f := field{kind: head & 15}
		if delta := head >> 4; delta != 0 {
			f.id = last + int16(delta)
		} else {
			id, n := binary.Varint(b[size:])
			if n <= 0 || id < 0 || id > 1<<15-1 {
				return nil, 0, errThrift
			}
			f.id, size = int16(id), size+n
		}
		n, err := skip(b[size:], f.kind, false, 0)
		if err != nil || f.id <= last {
			return nil, 0, errThrift
		}
		f.value, last, size = b[size:size+n], f.id, size+n
		r = append(r, f)
	}
}

// skip is how many bytes a value has. A boolean has one in a list, and none in a field.
func skip(b []byte, kind byte, inList bool, depth int) (int, error) {
	n := 0
	switch kind {
	case thriftTrue, thriftFalse:
		if inList {
			n = 1
		}
	case thriftByte:
		n = 1
	case thriftI16, thriftI32, thriftI64:
		if _, n = binary.Varint(b); n <= 0 {
			return 0, errThrift
		}
	case thriftDouble:
		n = 8
	case thriftUUID:
		n = 16
	case thriftBinary:
		size, k := binary.Uvarint(b)
		if k <= 0 || size > uint64(len(b)-k) {
			return 0, errThrift
		}
		n = k + int(size) //nolint:gosec // at most len(b)
	case thriftList, thriftSet, thriftMap, thriftStruct:
		if depth >= maxNesting {
			return 0, errThrift
		}
		return skipNested(b, kind, depth+1)
	default:
		return 0, errThrift
	}
	if n > len(b) {
		return 0, errThrift
	}
	return n, nil
}

func skipNested(b []byte, kind byte, depth int) (int, error) {
	switch kind {
	case thriftStruct:
		return skipStruct(b, depth)
	case thriftMap:
		count, at := binary.Uvarint(b)
		if at <= 0 || count > uint64(len(b)) {
			return 0, errThrift
		}
		if count == 0 {
			return at, nil
		}
		if at == len(b) {
			return 0, errThrift
		}
		kinds := b[at]
		at++
		for range 2 * count {
			n, err := skip(b[at:], kinds>>4, true, depth)
			if err != nil {
				return 0, err
			}
			at, kinds = at+n, kinds<<4|kinds>>4
		}
		return at, nil
	}
	l, err := parseList(b)
	if err != nil {
		return 0, err
	}
	at := len(b) - len(l.rest)
	for range l.count {
		n, err := skip(b[at:], l.kind, true, depth)
		if err != nil {
			return 0, err
		}
		at += n
	}
	return at, nil
}

func skipStruct(b []byte, depth int) (at int, err error) {
	for {
		if at >= len(b) {
			return 0, errThrift
		}
		head := b[at]
		at++
		if head == 0 {
			return at, nil
		}
		if head>>4 == 0 {
			_, n := binary.Varint(b[at:])
			if n <= 0 {
				return 0, errThrift
			}
			at += n
		}
		n, err := skip(b[at:], head&15, false, depth)
		if err != nil {
			return 0, err
		}
		at += n
	}
}

// list is a list whose items have not been read yet.
type list struct {
	kind  byte
	count int
	rest  []byte
}

func parseList(b []byte) (l list, err error) {
	if len(b) == 0 {
		return l, errThrift
	}
	l.kind, l.count, l.rest = b[0]&15, int(b[0]>>4), b[1:]
	if l.count == 15 {
		n, k := binary.Uvarint(l.rest)
		if k <= 0 || n > uint64(len(b)) { // every item has a byte at least
			return l, errThrift
		}
		l.count, l.rest = int(n), l.rest[k:] //nolint:gosec // at most len(b)
	}
	return l, nil
}

// next is the bytes of the next item.
func (l *list) next() ([]byte, error) {
	if l.count == 0 {
		return nil, errThrift
	}
	n, err := skip(l.rest, l.kind, true, 0)
	if err != nil {
		return nil, err
	}
	item := l.rest[:n]
	l.count, l.rest = l.count-1, l.rest[n:]
	return item, nil
}

func (r record) get(id int16) *field {
	for i := range r {
		if r[i].id == id {
			return &r[i]
		}
	}
	return nil
}

// number is a whole number, or missing.
func (r record) number(id int16, missing int64) int64 {
	f := r.get(id)
	if f == nil {
		return missing
	}
	switch f.kind {
	case thriftByte:
		return int64(int8(f.value[0]))
	case thriftI16, thriftI32, thriftI64:
		n, _ := binary.Varint(f.value)
		return n
	}
	return missing
}

func (r record) bytes(id int16) []byte {
	f := r.get(id)
	if f == nil || f.kind != thriftBinary {
		return nil
	}
	_, k := binary.Uvarint(f.value)
	return f.value[k:]
}

func (r record) nested(id int16) record {
	f := r.get(id)
	if f == nil || f.kind != thriftStruct {
		return nil
	}
	out, _, err := parseRecord(f.value)
	if err != nil {
		return nil
	}
	if out == nil {
		out = record{}
	}
	return out
}

// list is a list of items of a kind; one that is missing or of another kind is empty.
func (r record) list(id int16, kind byte) list {
	f := r.get(id)
	if f == nil || f.kind != thriftList {
		return list{}
	}
	l, err := parseList(f.value)
	if err != nil || l.kind != kind {
		return list{}
	}
	return l
}

// with is the struct with some fields set.
func (r record) with(fields ...field) record {
	out := slices.Clone(r)
	for _, f := range fields {
		at, found := slices.BinarySearchFunc(out, f.id, func(x field, id int16) int { return int(x.id) - int(id) })
		if found {
			out[at] = f
		} else {
			out = slices.Insert(out, at, f)
		}
	}
	return out
}

// without is the struct without some fields.
func (r record) without(ids ...int16) record {
	return slices.DeleteFunc(slices.Clone(r), func(f field) bool { return slices.Contains(ids, f.id) })
}

// appendTo appends the struct in the compact protocol.
func (r record) appendTo(b []byte) []byte {
	var last int16
	for _, f := range r {
		if delta := f.id - last; delta > 0 && delta < 16 {
			b = append(b, byte(delta)<<4|f.kind)
		} else {
			b = binary.AppendVarint(append(b, f.kind), int64(f.id))
		}
		b, last = append(b, f.value...), f.id
	}
	return append(b, 0)
}

func i32(id int16, n int64) field { return field{id, thriftI32, binary.AppendVarint(nil, n)} }

func i64(id int16, n int64) field { return field{id, thriftI64, binary.AppendVarint(nil, n)} }

func binaryOf(b []byte) []byte {
	return append(binary.AppendUvarint(nil, uint64(len(b))), b...)
}

func text(id int16, s string) field { return field{id, thriftBinary, binaryOf([]byte(s))} }

func structOf(id int16, r record) field { return field{id, thriftStruct, r.appendTo(nil)} }

func listOf(id int16, kind byte, items [][]byte) field {
	b := []byte{byte(len(items))<<4 | kind}
	if len(items) >= 15 {
		b = binary.AppendUvarint([]byte{15<<4 | kind}, uint64(len(items)))
	}
	for _, x := range items {
		b = append(b, x...)
	}
	return field{id, thriftList, b}
}
