// Package parquet copies Parquet files without some of their columns and rows.
//
// Columns of row groups of which all rows stay are copied as they are. Of others, pages are read
// one at a time and written without the rows that go: with the same compression, and with the
// values that are left of their dictionary where they have one, else plainly. The schema, with the
// types of the columns, is copied byte for byte. Statistics of what is rewritten, indexes and Bloom
// filters are left out, as the format allows.
package parquet

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"slices"

	"github.com/berthml/berth"
)

const magic = "PAR1"

// Limits of a file's metadata.
const (
	maxFooter    = 32 << 20
	maxGroups    = 100_000
	maxGroupRows = 1 << 28
)

// Fields of the metadata of a file.
const (
	metaSchema     = 2
	metaRows       = 3
	metaGroups     = 4
	metaPairs      = 5
	metaOrders     = 7
	metaEncryption = 8
)

// Fields of the metadata of a row group.
const (
	groupColumns    = 1
	groupBytes      = 2
	groupRows       = 3
	groupSorting    = 4
	groupOffset     = 5
	groupCompressed = 6
	groupOrdinal    = 7
)

// Fields of a column chunk, and of its metadata.
const (
	chunkPath   = 1
	chunkOffset = 2
	chunkMeta   = 3

	columnType         = 1
	columnEncodings    = 2
	columnPath         = 3
	columnCodec        = 4
	columnValues       = 5
	columnUncompressed = 6
	columnCompressed   = 7
	columnData         = 9
	columnIndex        = 10
	columnDictionary   = 11
	columnStatistics   = 12
	columnPageCounts   = 13
	columnBloom        = 14
	columnBloomLength  = 15
	columnSizes        = 16
	columnGeometry     = 17
)

// File is a file that can be read.
type File struct {
	in     io.ReaderAt
	size   int64 // without the footer
	meta   record
	schema *schema
	groups [][]byte
}

// Open reads the metadata of a file. Errors are for the user, and do not name the file.
func Open(in io.ReaderAt, size int64) (*File, error) {
	var tail [8]byte
	if size < 12 {
		return nil, damaged("it is too short")
	}
	if _, err := in.ReadAt(tail[:], size-8); err != nil {
		return nil, err
	}
	if string(tail[4:]) == "PARE" {
		return nil, berth.Errorf(berth.Invalid, "encrypted Parquet files cannot be read on a node")
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	if string(tail[4:]) != magic || n > size-12 {
		return nil, damaged("it does not end as one")
	}
	if n > maxFooter {
		return nil, berth.Errorf(berth.Invalid, "the metadata of the Parquet file has more than %d MB", maxFooter>>20)
	}
	footer := make([]byte, n)
	if _, err := in.ReadAt(footer, size-8-n); err != nil {
		return nil, err
	}
	f := &File{in: in, size: size - 8 - n}
	var err error
	if f.meta, _, err = parseRecord(footer); err != nil {
		return nil, err
	}
	if f.meta.get(metaEncryption) != nil {
		return nil, berth.Errorf(berth.Invalid, "encrypted Parquet files cannot be read on a node")
	}
	if f.schema, err = parseSchema(f.meta.list(metaSchema, thriftStruct)); err != nil {
		return nil, err
	}
	groups := f.meta.list(metaGroups, thriftStruct)
	if groups.count > maxGroups {
		return nil, berth.Errorf(berth.Invalid, "the Parquet file has %d row groups; %d are allowed", groups.count, maxGroups)
	}
	for groups.count > 0 {
		b, err := groups.next()
		if err != nil {
			return nil, err
		}
		f.groups = append(f.groups, b)
	}
	return f, nil
}

// Columns are the names of the columns of the table.
func (f *File) Columns() (names []string) {
	for _, c := range f.schema.columns {
		names = append(names, c.name)
	}
	return names
}

// group is a row group.
type group struct {
	raw    record
	rows   int64
	chunks []chunk
}

// chunk is a column of a row group.
type chunk struct {
	raw, meta    record
	leaf         *leaf
	offset, size int64
}

// group reads the metadata of a row group. copied is how many bytes the row groups before have.
func (f *File) group(b []byte, copied *int64) (*group, error) {
	raw, _, err := parseRecord(b)
	if err != nil {
		return nil, err
	}
	g := &group{raw: raw, rows: raw.number(groupRows, -1)}
	chunks := raw.list(groupColumns, thriftStruct)
	if g.rows < 0 || chunks.count != len(f.schema.leaves) {
		return nil, damaged("a row group does not have the columns of the schema")
	}
	if g.rows > maxGroupRows {
		return nil, berth.Errorf(berth.Invalid, "a row group has %d rows; %d are allowed: write the file with smaller row groups", g.rows, maxGroupRows)
	}
	for i := range f.schema.leaves {
		b, err := chunks.next()
		if err != nil {
			return nil, err
		}
		c, err := f.chunk(b, &f.schema.leaves[i])
		if err != nil {
			return nil, err
		}
		// Chunks that overlap would make a small file a large one.
		if *copied += c.size; *copied > f.size {
			return nil, damaged("its columns have more bytes than the file")
		}
		g.chunks = append(g.chunks, c)
	}
	return g, nil
}

func (f *File) chunk(b []byte, l *leaf) (c chunk, err error) {
	c.leaf = l
	if c.raw, _, err = parseRecord(b); err != nil {
		return c, err
	}
	if c.meta = c.raw.nested(chunkMeta); c.meta == nil || c.raw.get(chunkPath) != nil || c.meta.number(columnType, -1) != int64(l.physical) {
		return c, damaged("column %s has no data of its type in the file", l.element.bytes(elementName))
	}
	c.offset, c.size = c.meta.number(columnData, -1), c.meta.number(columnCompressed, -1)
	if d := c.meta.number(columnDictionary, 0); d > 0 && d < c.offset {
		c.offset = d
	}
	if c.offset < int64(len(magic)) || c.size < 0 || c.size > f.size || c.offset > f.size-c.size || c.meta.number(columnValues, -1) < 0 {
		return c, damaged("column %s is not within the file", l.element.bytes(elementName))
	}
	return c, nil
}

func (f *File) pages(ctx context.Context, c *chunk, h *held) (*pages, error) {
	p := &pages{ctx: ctx, left: c.size, count: c.meta.number(columnValues, 0), codec: c.meta.number(columnCodec, -1), leaf: c.leaf, held: h}
	p.in = bufio.NewReaderSize(io.NewSectionReader(f.in, c.offset, c.size), int(min(c.size, maxHead)))
	return p, checkCodec(p.codec)
}

// Selection says which columns and rows of a file are copied.
type Selection struct {
	// Columns are those that stay, as indexes of Columns, in order.
	Columns []int
	// PathColumn is the name of a column to put before the others; all its values are Path.
	PathColumn, Path string
	// Reads are the columns whose values Row asks for.
	Reads []int
	// Row says whether the next row stays; value is what is in a column: nil, or a bool, int64,
	// float64, string or time.Time. If Row is nil, all rows stay.
	Row func(value func(column int) any) bool
	// Done says that no more rows stay, so that no more need be read. It may be nil.
	Done func() bool
}

// Copy writes what is selected. If that has no rows, create is not called.
func (f *File) Copy(ctx context.Context, s Selection, create func() (io.Writer, error)) error {
	for _, c := range s.Reads {
		if err := f.Comparable(c, nil); err != nil {
			return err
		}
	}
	var w *writer
	copied := int64(0)
	for _, raw := range f.groups {
		if s.Done != nil && s.Done() {
			break
		}
		g, err := f.group(raw, &copied)
		if err != nil {
			return err
		}
		rows, count, err := f.choose(ctx, g, &s)
		if err != nil {
			return err
		}
		if count == 0 {
			continue
		}
		if w == nil {
			to, err := create()
			if err != nil {
				return err
			}
			if w, err = newWriter(f, &s, to); err != nil {
				return err
			}
		}
		if count == g.rows {
			rows = nil
		}
		if err := w.group(ctx, g, rows, count); err != nil {
			return err
		}
	}
	if w == nil {
		return nil
	}
	return w.end()
}

// rowSet is a set of rows of a row group.
type rowSet []uint64

func (r rowSet) has(row int64) bool {
	i := int(row >> 6)
	return i < len(r) && r[i]>>(row&63)&1 != 0
}

func (r *rowSet) add(row int64) {
	for int64(len(*r)) <= row>>6 {
		*r = append(*r, 0)
	}
	(*r)[row>>6] |= 1 << (row & 63)
}

// choose asks which rows of a row group stay.
func (f *File) choose(ctx context.Context, g *group, s *Selection) (rows rowSet, count int64, err error) {
	if s.Row == nil {
		return nil, g.rows, nil
	}
	readers := map[int]*scalars{}
	h := &held{}
	for _, c := range s.Reads {
		if readers[c] == nil {
			if readers[c], err = f.scalars(ctx, g, c, h); err != nil {
				return nil, 0, err
			}
		}
	}
	row, err := int64(0), error(nil)
	value := func(column int) any {
		v, verr := readers[column].at(row)
		if verr != nil && err == nil {
			err = verr
		}
		return v
	}
	for ; row < g.rows; row++ {
		if row%4096 == 0 && ctx.Err() != nil {
			return nil, 0, context.Cause(ctx)
		}
		if s.Done != nil && s.Done() {
			break
		}
		stays := s.Row(value)
		if err != nil {
			return nil, 0, err
		}
		if stays {
			rows.add(row)
			count++
		}
	}
	return rows, count, nil
}

// leafOf is the index of the leaf of a column that has single values.
func (f *File) leafOf(column int) (int, bool) {
	c := &f.schema.columns[column]
	return c.leaves[0], !c.hasChildren && f.schema.leaves[c.leaves[0]].maxRep == 0
}

// leaves are the indexes of the leaves of some columns.
func (f *File) leaves(columns []int) (out []int) {
	for _, c := range columns {
		for i := range f.schema.columns[c].leaves[1] - f.schema.columns[c].leaves[0] {
			out = append(out, f.schema.columns[c].leaves[0]+i)
		}
	}
	return out
}

// all says whether columns are all of the file.
func (f *File) all(columns []int) bool {
	return len(columns) == len(f.schema.columns) && slices.IsSorted(columns)
}
