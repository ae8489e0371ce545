package parquet

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
)

// end writes the metadata of the file.
func (w *writer) end() error {
	f := w.file
	root, _, err := parseRecord(f.schema.raw[0])
	if err != nil {
		return err
	}
	columns := len(w.s.Columns)
	var elements [][]byte
	if w.s.PathColumn != "" {
		columns++
		elements = append(elements, pathElement(w.s.PathColumn))
	}
	for _, c := range w.s.Columns {
		at := f.schema.columns[c].elements
		elements = append(elements, f.schema.raw[at[0]:at[1]]...)
	}
	elements = append([][]byte{root.with(i32(elementChildren, int64(columns))).appendTo(nil)}, elements...)
	out := f.meta.with(listOf(metaSchema, thriftStruct, elements), i64(metaRows, w.rows), listOf(metaGroups, thriftStruct, w.groups))
	if w.s.PathColumn != "" || !f.all(w.s.Columns) {
		if out, err = w.project(out); err != nil {
			return err
		}
	}
	b := out.appendTo(nil)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(b))) //nolint:gosec // about as large as the one that was read
	return w.write(append(b, magic...))
}

// project makes what the metadata says of each column that of the columns that stay.
func (w *writer) project(meta record) (record, error) {
	orders := w.file.meta.list(metaOrders, thriftStruct)
	if orders.count == len(w.file.schema.leaves) {
		all := make([][]byte, orders.count)
		for i := range all {
			var err error
			if all[i], err = orders.next(); err != nil {
				return nil, err
			}
		}
		var items [][]byte
		if w.s.PathColumn != "" {
			items = append(items, record{structOf(1, nil)}.appendTo(nil)) // the order of its type
		}
		for _, i := range w.leaves {
			items = append(items, all[i])
		}
		meta = meta.with(listOf(metaOrders, thriftStruct, items))
	} else {
		meta = meta.without(metaOrders)
	}
	return w.projectArrow(meta)
}

// arrowSchema is the key of the schema that Arrow keeps beside Parquet's, for types that only Arrow
// has. Its columns are those of the file, by their places.
const arrowSchema = "ARROW:schema"

func (w *writer) projectArrow(meta record) (record, error) {
	if meta.get(metaPairs) == nil {
		return meta, nil
	}
	var items [][]byte
	for pairs := meta.list(metaPairs, thriftStruct); pairs.count > 0; {
		b, err := pairs.next()
		if err != nil {
			return nil, err
		}
		pair, _, err := parseRecord(b)
		if err != nil {
			return nil, err
		}
		if string(pair.bytes(1)) == arrowSchema {
			text, err := arrowColumns(string(pair.bytes(2)), len(w.file.schema.columns), w.s.Columns)
			if err != nil || w.s.PathColumn != "" {
				continue // readers then take Parquet's types
			}
			b = pair.with(field{2, thriftBinary, binaryOf([]byte(text))}).appendTo(nil)
		}
		items = append(items, b)
	}
	return meta.with(listOf(metaPairs, thriftStruct, items)), nil
}

var errArrow = errors.New("the Arrow schema cannot be read")

// arrowColumns is an Arrow schema with some of its fields: a message in base64, whose flat buffer
// has a vector of offsets to the fields.
func arrowColumns(text string, count int, columns []int) (string, error) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(b) < 8 {
		return "", errArrow
	}
	start := 4
	if binary.LittleEndian.Uint32(b) == 1<<32-1 { // a marker that older messages do not have
		start = 8
	}
	x := flat(b[start:])
	message, err := x.follow(0)
	if err != nil {
		return "", err
	}
	schema, err := x.child(message, 2)
	if err != nil {
		return "", err
	}
	fields, err := x.child(schema, 1)
	if err != nil {
		return "", err
	}
	if n, err := x.uint32(fields); err != nil || int(n) != count || fields+4+4*count > len(x) {
		return "", errArrow
	}
	for to, from := range columns {
		at, offset := fields+4+4*from, fields+4+4*to
		n, err := x.uint32(at)
		if err != nil {
			return "", err
		}
		binary.LittleEndian.PutUint32(x[offset:], n+uint32(at-offset)) //nolint:gosec // columns are in order
	}
	binary.LittleEndian.PutUint32(x[fields:], uint32(len(columns))) //nolint:gosec // a count
	return base64.StdEncoding.EncodeToString(b), nil
}

// flat is a flat buffer.
type flat []byte

func (x flat) uint32(at int) (uint32, error) {
	if at < 0 || at > len(x)-4 {
		return 0, errArrow
	}
	return binary.LittleEndian.Uint32(x[at:]), nil
}

// follow is where the offset at a place leads.
func (x flat) follow(at int) (int, error) {
	n, err := x.uint32(at)
	if err != nil || int64(at)+int64(n) > int64(len(x)) {
		return 0, errArrow
	}
	return at + int(n), nil
}

// child is where a field of the table at a place is.
func (x flat) child(table, field int) (int, error) {
	back, err := x.uint32(table)
	if err != nil {
		return 0, err
	}
	fields, at := table-int(int32(back)), 4+2*field //nolint:gosec // a signed offset
	if fields < 0 || fields+at > len(x)-2 || int(binary.LittleEndian.Uint16(x[fields:])) < at+2 {
		return 0, errArrow
	}
	offset := int(binary.LittleEndian.Uint16(x[fields+at:]))
	if offset == 0 {
		return 0, errArrow
	}
	return x.follow(table + offset)
}
