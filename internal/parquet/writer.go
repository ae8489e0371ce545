package parquet

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"github.com/berthml/berth"
)

// pageSize is about how large the pages are that are written.
const pageSize = 1 << 20

// writer writes a file with columns and rows of another.
type writer struct {
	file   *File
	s      *Selection
	leaves []int
	to     io.Writer
	at     int64
	rows   int64
	groups [][]byte
}

func newWriter(f *File, s *Selection, to io.Writer) (*writer, error) {
	w := &writer{file: f, s: s, leaves: f.leaves(s.Columns), to: to}
	return w, w.write([]byte(magic))
}

func (w *writer) write(b []byte) error {
	n, err := w.to.Write(b)
	w.at += int64(n)
	return err
}

// group writes some rows of a row group, or all if rows is nil.
func (w *writer) group(ctx context.Context, g *group, rows rowSet, count int64) error {
	start := w.at
	var chunks [][]byte
	var full int64
	add := func(meta record) {
		full += meta.number(columnUncompressed, 0)
		chunks = append(chunks, record{i64(chunkOffset, 0), structOf(chunkMeta, meta)}.appendTo(nil))
	}
	if w.s.PathColumn != "" {
		meta, err := w.path(count)
		if err != nil {
			return err
		}
		add(meta)
	}
	for _, i := range w.leaves {
		c := &g.chunks[i]
		var meta record
		var err error
		if rows == nil {
			meta, err = w.same(ctx, c)
		} else {
			meta, err = w.chosen(ctx, c, g, rows)
		}
		if err != nil {
			return err
		}
		add(meta)
	}
	out := g.raw.without(groupOrdinal).with(listOf(groupColumns, thriftStruct, chunks), i64(groupBytes, full), i64(groupRows, count),
		i64(groupOffset, start), i64(groupCompressed, w.at-start))
	if w.s.PathColumn != "" || !w.file.all(w.s.Columns) {
		out = out.without(groupSorting) // it has indexes of columns
	}
	w.groups = append(w.groups, out.appendTo(nil))
	w.rows += count
	return nil
}

// same copies a column as it is.
func (w *writer) same(ctx context.Context, c *chunk) (record, error) {
	move := w.at - c.offset
	for at := int64(0); at < c.size; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		n, err := io.CopyN(w.to, io.NewSectionReader(w.file.in, c.offset+at, c.size-at), min(c.size-at, 4<<20))
		at, w.at = at+n, w.at+n
		if err != nil {
			return nil, err
		}
	}
	meta := c.meta.without(columnBloom, columnBloomLength).with(i64(columnData, c.meta.number(columnData, 0)+move))
	for _, id := range []int16{columnIndex, columnDictionary} {
		if n := meta.number(id, 0); n > 0 {
			meta = meta.with(i64(id, n+move))
		}
	}
	return meta, nil
}

// chosen writes the values of a column that are in some rows.
func (w *writer) chosen(ctx context.Context, c *chunk, g *group, rows rowSet) (record, error) {
	used, err := w.used(ctx, c, rows)
	if err != nil {
		return nil, err
	}
	p, err := w.file.pages(ctx, c, &held{})
	if err != nil {
		return nil, err
	}
	o := &chunkWriter{w: w, leaf: c.leaf, codec: p.codec, start: w.at, data: -1, dict: -1}
	row := int64(-1)
	for {
		x, err := p.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if x.dictionary {
			if err := o.dictionary(p.dict, used); err != nil {
				return nil, err
			}
			continue
		}
		if row, err = o.page(ctx, x, row, rows); err != nil {
			return nil, err
		}
	}
	if row+1 != g.rows {
		return nil, damaged("column %s has %d rows, and its row group %d", c.leaf.element.bytes(elementName), row+1, g.rows)
	}
	return o.meta(c.meta), nil
}

// used is which values of its dictionary a column has in some rows. The dictionary comes before the
// data, so the column is read twice: values that are not in these rows must not be in the file.
func (w *writer) used(ctx context.Context, c *chunk, rows rowSet) (used rowSet, err error) {
	p, err := w.file.pages(ctx, c, &held{})
	if err != nil {
		return nil, err
	}
	row := int64(-1)
	for {
		x, err := p.next()
		if errors.Is(err, io.EOF) || err == nil && p.dict == nil {
			return used, nil
		}
		if err != nil {
			return nil, err
		}
		indexed, _ := x.values.(*indexes)
		for i := range x.count {
			if i%65536 == 0 && ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			rep, def, err := x.levels(c.leaf)
			if err != nil {
				return nil, err
			}
			if rep == 0 {
				row++
			}
			if def < c.leaf.maxDef || indexed == nil {
				continue
			}
			n, err := indexed.index()
			if err != nil {
				return nil, err
			}
			if row >= 0 && rows.has(row) {
				used.add(int64(n))
			}
		}
	}
}

// chunkWriter writes the pages of a column.
type chunkWriter struct {
	w          *writer
	leaf       *leaf
	codec      int64
	start      int64
	data, dict int64 // where the first page of data and the dictionary are
	values     int64
	full       int64 // bytes before compression
	encodings  []int64
	entries    int32 // of the page
	rep, def   hybridWriter
	index      hybridWriter
	places     []uint32 // of the values of the dictionary in the new one
	width      int      // of an index in the new one
	plain      []byte
	bools      int // of the page
}

// dictionary writes the values of a dictionary that are used.
func (o *chunkWriter) dictionary(d *dictionary, used rowSet) error {
	var b []byte
	count := uint32(0)
	o.places = make([]uint32, d.count)
	for i := range o.places {
		if !used.has(int64(i)) {
			continue
		}
		v := d.value(uint32(i)) //nolint:gosec // a count
		if d.size == 0 {
			b = binary.LittleEndian.AppendUint32(b, uint32(len(v))) //nolint:gosec // of a page
		}
		b = append(b, v...)
		o.places[i] = count
		count++
	}
	o.width = max(width(int(count)-1), 1)
	if count == 0 {
		return nil
	}
	o.dict = o.w.at
	o.uses(plain)
	n, err := o.w.page(o.codec, b, i32(1, dictionaryPage), structOf(7, record{i32(1, int64(count)), i32(2, plain)}))
	o.full += n
	return err
}

func (o *chunkWriter) uses(encoding int64) {
	if !slices.Contains(o.encodings, encoding) {
		o.encodings = append(o.encodings, encoding)
	}
}

// page writes what stays of a page; row is the one of the value before.
func (o *chunkWriter) page(ctx context.Context, x *page, row int64, rows rowSet) (int64, error) {
	indexed, _ := x.values.(*indexes)
	o.begin(indexed)
	for i := range x.count {
		if i%65536 == 0 && ctx.Err() != nil {
			return row, context.Cause(ctx)
		}
		rep, def, err := x.levels(o.leaf)
		if err != nil {
			return row, err
		}
		if rep == 0 {
			row++
		}
		if row < 0 {
			return row, damaged("column %s begins in the middle of a row", o.leaf.element.bytes(elementName))
		}
		stays := rows.has(row)
		if o.size() > pageSize && rep == 0 {
			if err := o.flush(indexed); err != nil {
				return row, err
			}
		}
		if o.size() > maxPage/2 {
			return row, berth.Errorf(berth.Invalid, "a row has more than %d MB in column %s", maxPage>>21, o.leaf.element.bytes(elementName))
		}
		if stays {
			o.entry(rep, def)
		}
		if def < o.leaf.maxDef {
			continue
		}
		if err := o.value(x, indexed, stays); err != nil {
			return row, err
		}
	}
	return row, o.flush(indexed)
}

func (o *chunkWriter) size() int {
	return len(o.plain) + o.rep.size() + o.def.size() + o.index.size()
}

func (o *chunkWriter) begin(indexed *indexes) {
	o.entries, o.plain, o.bools = 0, o.plain[:0], 0
	o.rep.reset(width(o.leaf.maxRep))
	o.def.reset(width(o.leaf.maxDef))
	if indexed != nil {
		o.index.reset(o.width)
	}
}

func (o *chunkWriter) entry(rep, def int) {
	o.entries++
	if o.leaf.maxRep > 0 {
		o.rep.add(uint32(rep)) //nolint:gosec // a depth
	}
	if o.leaf.maxDef > 0 {
		o.def.add(uint32(def)) //nolint:gosec // a depth
	}
}

// value reads the next value of a page, and adds it if it stays.
func (o *chunkWriter) value(x *page, indexed *indexes, stays bool) error {
	if indexed != nil {
		i, err := indexed.index()
		if err != nil || !stays {
			return err
		}
		if o.dict < 0 { // used did not see it
			return damaged("the dictionary of column %s is not before its values", o.leaf.element.bytes(elementName))
		}
		o.index.add(o.places[i])
		return nil
	}
	b, err := x.values.next()
	if err != nil || !stays {
		return err
	}
	switch o.leaf.physical {
	case typeBoolean:
		if o.bools%8 == 0 {
			o.plain = append(o.plain, 0)
		}
		o.plain[o.bools/8] |= b[0] << (o.bools % 8)
		o.bools++
		return nil
	case typeBytes:
		o.plain = binary.LittleEndian.AppendUint32(o.plain, uint32(len(b))) //nolint:gosec // of a page
	case typeFixed:
		if len(b) != o.leaf.length {
			return damaged("a value of column %s has the wrong size", o.leaf.element.bytes(elementName))
		}
	}
	o.plain = append(o.plain, b...)
	return nil
}

// flush writes a page, if anything is in it.
func (o *chunkWriter) flush(indexed *indexes) error {
	if o.entries == 0 {
		return nil
	}
	var b []byte
	for _, l := range []struct {
		highest int
		levels  *hybridWriter
	}{{o.leaf.maxRep, &o.rep}, {o.leaf.maxDef, &o.def}} {
		if l.highest > 0 {
			levels := l.levels.end()
			b = append(binary.LittleEndian.AppendUint32(b, uint32(len(levels))), levels...) //nolint:gosec // of a page
			o.uses(rle)
		}
	}
	encoding := int64(plain)
	if indexed != nil && o.dict >= 0 { // else all are null
		encoding = dictionaryRLE
		b = append(append(b, byte(o.index.width)), o.index.end()...)
	} else {
		b = append(b, o.plain...)
	}
	o.uses(encoding)
	if o.data < 0 {
		o.data = o.w.at
	}
	o.values += int64(o.entries)
	n, err := o.w.page(o.codec, b, i32(1, dataPage), structOf(5, record{i32(1, int64(o.entries)), i32(2, encoding), i32(3, rle), i32(4, rle)}))
	o.full += n
	o.begin(indexed)
	return err
}

// page writes a page, and returns how many bytes it would have without compression.
func (w *writer) page(codec int64, b []byte, kind, head field) (int64, error) {
	packed, err := compress(codec, b)
	if err != nil {
		return 0, err
	}
	h := record{kind, i32(2, int64(len(b))), i32(3, int64(len(packed))), head}.appendTo(nil)
	if err := w.write(h); err != nil {
		return 0, err
	}
	return int64(len(h) + len(b)), w.write(packed)
}

// meta is the metadata of the column that was written, instead of that of the one that was read.
func (o *chunkWriter) meta(from record) record {
	encodings := make([][]byte, len(o.encodings))
	for i, e := range o.encodings {
		encodings[i] = binary.AppendVarint(nil, e)
	}
	out := from.without(columnIndex, columnDictionary, columnStatistics, columnPageCounts, columnBloom, columnBloomLength, columnSizes, columnGeometry).with(
		listOf(columnEncodings, thriftI32, encodings), i64(columnValues, o.values), i64(columnUncompressed, o.full),
		i64(columnCompressed, o.w.at-o.start), i64(columnData, max(o.data, 0)))
	if o.dict >= 0 {
		out = out.with(i64(columnDictionary, o.dict))
	}
	return out
}

// path writes the column that says which file rows are from: one value for all of them.
func (w *writer) path(count int64) (record, error) {
	start := w.at
	value := append(binary.LittleEndian.AppendUint32(nil, uint32(len(w.s.Path))), w.s.Path...) //nolint:gosec // a name
	if _, err := w.page(uncompressed, value, i32(1, dictionaryPage), structOf(7, record{i32(1, 1), i32(2, plain)})); err != nil {
		return nil, err
	}
	data := w.at
	run := append(binary.AppendUvarint([]byte{1}, uint64(count)<<1), 0) //nolint:gosec // not negative
	head := record{i32(1, count), i32(2, dictionaryRLE), i32(3, rle), i32(4, rle)}
	if _, err := w.page(uncompressed, run, i32(1, dataPage), structOf(5, head)); err != nil {
		return nil, err
	}
	encodings := [][]byte{binary.AppendVarint(nil, plain), binary.AppendVarint(nil, dictionaryRLE)}
	return record{
		i32(columnType, typeBytes), listOf(columnEncodings, thriftI32, encodings), listOf(columnPath, thriftBinary, [][]byte{binaryOf([]byte(w.s.PathColumn))}),
		i32(columnCodec, uncompressed), i64(columnValues, count), i64(columnUncompressed, w.at-start), i64(columnCompressed, w.at-start),
		i64(columnData, data), i64(columnDictionary, start),
	}, nil
}
