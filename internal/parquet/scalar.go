package parquet

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/berthml/berth"
)

// Converted types: how older writers say what the values of a column are.
const (
	convertedDecimal = 5
	convertedDate    = 6
	convertedMillis  = 9
	convertedMicros  = 10
	convertedUint8   = 11
	convertedUint64  = 14
)

// Logical types, by the field of the union.
const (
	logicalDecimal   = 5
	logicalDate      = 6
	logicalTime      = 7
	logicalTimestamp = 8
	logicalInteger   = 10
	logicalFloat16   = 15
)

// value is a value of a column as Selection.Row sees it.
type value func(b []byte) any

// Comparable refuses a column that does not have single values, and one whose values are not of the
// type of sample, which is a bool, int64, float64, string or time.Time, or nil for any of them.
func (f *File) Comparable(column int, sample any) error {
	name := f.schema.columns[column].name
	i, single := f.leafOf(column)
	if !single {
		return berth.Errorf(berth.Invalid, "column %s has lists or structs, which cannot be compared", name)
	}
	convert := f.schema.leaves[i].value()
	if convert == nil {
		return berth.Errorf(berth.Invalid, "column %s has values that cannot be compared: only numbers, strings, booleans, dates and timestamps can", name)
	}
	want, have := typeName(sample), typeName(convert(make([]byte, max(f.schema.leaves[i].size(), 1))))
	if want != "" && want != have {
		return berth.Errorf(berth.Invalid, "column %s has %s, and cannot be compared with %s", name, have, want)
	}
	return nil
}

func typeName(v any) string {
	switch v.(type) {
	case bool:
		return "booleans (True and False)"
	case int64, float64:
		return "numbers"
	case string:
		return "strings"
	case time.Time:
		return `times such as datetime(2024, 12, 31)`
	}
	return ""
}

// value is how a value is read, or nil if it cannot be compared.
func (l *leaf) value() value {
	logical, converted := l.element.nested(elementLogical), l.element.number(elementConverted, -1)
	is := func(id int16, old ...int64) bool { return logical.get(id) != nil || slices.Contains(old, converted) }
	switch {
	case is(logicalDecimal, convertedDecimal):
		return l.decimal(logical.nested(logicalDecimal))
	case l.physical == typeBoolean:
		return func(b []byte) any { return b[0] != 0 }
	case l.physical == typeInt96:
		return int96
	case l.physical == typeFloat:
		return func(b []byte) any { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) }
	case l.physical == typeDouble:
		return func(b []byte) any { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }
	case l.physical == typeFixed && is(logicalFloat16) && l.length == 2:
		return func(b []byte) any { return float16(binary.LittleEndian.Uint16(b)) }
	case l.physical == typeBytes:
		return func(b []byte) any { return string(b) }
	case l.physical == typeInt32 && is(logicalDate, convertedDate):
		return func(b []byte) any { return time.Unix(int32of(b)*24*60*60, 0).UTC() }
	case is(logicalTime, 7, 8):
		return nil
	case l.physical == typeInt32 || l.physical == typeInt64:
		return l.integer(logical, converted)
	}
	return nil
}

func int32of(b []byte) int64 { return int64(int32(binary.LittleEndian.Uint32(b))) } //nolint:gosec // its bits

func int64of(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b)) } //nolint:gosec // its bits

func (l *leaf) integer(logical record, converted int64) value {
	if t := logical.nested(logicalTimestamp); t != nil && l.physical == typeInt64 {
		switch unit := t.nested(2); {
		case unit.get(1) != nil:
			return func(b []byte) any { return time.UnixMilli(int64of(b)).UTC() }
		case unit.get(2) != nil:
			return func(b []byte) any { return time.UnixMicro(int64of(b)).UTC() }
		}
		return func(b []byte) any { return time.Unix(0, 0).Add(time.Duration(int64of(b))).UTC() }
	}
	switch {
	case converted == convertedMillis && l.physical == typeInt64:
		return func(b []byte) any { return time.UnixMilli(int64of(b)).UTC() }
	case converted == convertedMicros && l.physical == typeInt64:
		return func(b []byte) any { return time.UnixMicro(int64of(b)).UTC() }
	}
	unsigned := converted >= convertedUint8 && converted <= convertedUint64
	if i := logical.nested(logicalInteger); i != nil {
		signed := i.get(2)
		unsigned = signed != nil && signed.kind == thriftFalse
	}
	switch {
	case l.physical == typeInt32 && unsigned:
		return func(b []byte) any { return int64(binary.LittleEndian.Uint32(b)) }
	case l.physical == typeInt32:
		return func(b []byte) any { return int32of(b) }
	case unsigned:
		return func(b []byte) any {
			if n := binary.LittleEndian.Uint64(b); n > math.MaxInt64 {
				return float64(n)
			}
			return int64of(b)
		}
	}
	return func(b []byte) any { return int64of(b) }
}

// decimal is a number with a fixed number of digits after the point.
func (l *leaf) decimal(logical record) value {
	scale := logical.number(1, l.element.number(elementScale, 0))
	if scale < 0 || scale > 1000 || l.physical != typeInt32 && l.physical != typeInt64 && l.physical != typeFixed && l.physical != typeBytes {
		return nil
	}
	divisor := new(big.Int).Exp(big.NewInt(10), big.NewInt(scale), nil)
	return func(b []byte) any {
		n := new(big.Int)
		switch {
		case l.physical == typeInt32:
			n.SetInt64(int32of(b))
		case l.physical == typeInt64:
			n.SetInt64(int64of(b))
		case len(b) > 1024: // no decimal has as many digits
			return nil
		default:
			n.SetBytes(b)
			if len(b) > 0 && b[0]&0x80 != 0 {
				n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b)))) //nolint:gosec // a size
			}
		}
		x, _ := new(big.Rat).SetFrac(n, divisor).Float64()
		return x
	}
}

// int96 is a timestamp of older writers: nanoseconds of a day, and the day of the Julian period.
func int96(b []byte) any {
	const epoch = 2440588
	return time.Unix((int64(binary.LittleEndian.Uint32(b[8:]))-epoch)*24*60*60, 0).Add(time.Duration(int64of(b))).UTC()
}

func float16(h uint16) float64 {
	sign, exponent, fraction := 1.0, int(h>>10&31), float64(h&1023)
	if h>>15 != 0 {
		sign = -1
	}
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 31:
		if fraction != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

// scalars reads a column of single values.
type scalars struct {
	pages   *pages
	page    *page
	left    int64 // values of the page
	row     int64 // the next one
	leaf    *leaf
	convert value
	last    any // of the row before
	err     error
}

func (f *File) scalars(ctx context.Context, g *group, column int, h *held) (*scalars, error) {
	i, _ := f.leafOf(column)
	p, err := f.pages(ctx, &g.chunks[i], h)
	if err != nil {
		return nil, err
	}
	return &scalars{pages: p, leaf: p.leaf, convert: p.leaf.value()}, nil
}

// at is the value of a row, which is not before one that was asked for.
func (s *scalars) at(row int64) (any, error) {
	for s.row <= row && s.err == nil {
		s.step(s.row == row)
	}
	return s.last, s.err
}

func (s *scalars) step(want bool) {
	for s.left == 0 {
		if s.page, s.err = s.pages.next(); s.err != nil {
			if errors.Is(s.err, io.EOF) {
				s.err = damaged("column %s has fewer values than rows", s.leaf.element.bytes(elementName))
			}
			return
		}
		s.left = s.page.count
	}
	s.left--
	s.row++
	s.last = nil
	_, def, err := s.page.levels(s.leaf)
	if err != nil {
		s.err = err
		return
	}
	if def < s.leaf.maxDef {
		return
	}
	b, err := s.page.values.next()
	if err != nil {
		s.err = err
	} else if want {
		s.last = s.convert(b)
	}
}
