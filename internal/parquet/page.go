package parquet

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/berthml/berth"
)

// Types of pages.
const (
	dataPage       = 0
	dictionaryPage = 2
	dataPageV2     = 3
)

// What one page and all pages that are held at once may have. Most have a megabyte; some writers
// make one page of all values of a row group.
const (
	maxPage = 256 << 20
	maxHeld = 768 << 20
	maxHead = 256 << 10
)

// held counts the bytes of the pages that are in memory.
type held struct{ bytes int }

func (h *held) add(n int) error {
	if h.bytes += n; h.bytes > maxHeld {
		return berth.Errorf(berth.Invalid, "the pages of the columns that filter looks at have more than %d MB together: write the file with smaller pages", maxHeld>>20)
	}
	return nil
}

// page is a page of a column chunk.
type page struct {
	count    int64 // of values, with those that are null
	rep, def *hybrid
	values   values
	encoding int64
	// dictionary says that the page has no data, but is the dictionary of the pages that follow.
	dictionary bool
}

// pages reads the pages of a column chunk.
type pages struct {
	ctx   context.Context
	in    *bufio.Reader
	left  int64 // bytes
	count int64 // values
	codec int64
	leaf  *leaf
	dict  *dictionary
	held  *held
	now   int // bytes of the page that was read last
}

// next is the next page, or io.EOF.
func (p *pages) next() (*page, error) {
	if p.held.bytes -= p.now; p.count <= 0 {
		p.now = 0
		return nil, io.EOF
	}
	p.now = 0
	if err := p.ctx.Err(); err != nil {
		return nil, context.Cause(p.ctx)
	}
	head, size, err := p.head()
	if err != nil {
		return nil, err
	}
	full, packed := head.number(2, -1), head.number(3, -1)
	if packed < 0 || packed > p.left-int64(size) || full < 0 {
		return nil, damaged("a page is larger than its column")
	}
	if full > maxPage || packed > maxPage {
		return nil, berth.Errorf(berth.Invalid, "a page of column %s has more than %d MB: write the file with smaller pages", p.leaf.element.bytes(elementName), maxPage>>20)
	}
	p.now = int(full + packed)
	if err := p.held.add(p.now); err != nil {
		return nil, err
	}
	raw := make([]byte, size+int(packed))
	if _, err := io.ReadFull(p.in, raw); err != nil {
		return nil, damaged("it ends in a page: %w", err)
	}
	p.left -= int64(len(raw))
	body := raw[size:]
	if sum := head.number(4, -1<<40); sum != -1<<40 && uint32(sum) != crc32.ChecksumIEEE(body) { //nolint:gosec // its bits
		return nil, damaged("the checksum of a page of column %s is wrong", p.leaf.element.bytes(elementName))
	}
	switch head.number(1, -1) {
	case dictionaryPage:
		return p.dictionary(head.nested(7), body, int(full))
	case dataPage:
		return p.data(head.nested(5), body, int(full))
	case dataPageV2:
		return p.dataV2(head.nested(8), body, int(full))
	}
	return &page{}, nil // an index, which no writer is known to write
}

// head is the header of the next page, which is not consumed.
func (p *pages) head() (record, int, error) {
	b, err := p.in.Peek(int(min(p.left, maxHead)))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	head, size, err := parseRecord(b)
	if err != nil {
		return nil, 0, damaged("the header of a page of column %s is damaged", p.leaf.element.bytes(elementName))
	}
	return head, size, nil
}

func (p *pages) dictionary(head record, body []byte, full int) (*page, error) {
	if e := head.number(2, -1); p.dict != nil || e != plain && e != plainDictionary {
		return nil, damaged("column %s has a dictionary that cannot be read", p.leaf.element.bytes(elementName))
	}
	b, err := decompress(p.codec, body, full)
	if err == nil {
		p.dict, err = newDictionary(p.leaf, b, head.number(1, -1))
	}
	p.now = 0 // it is held as long as the column is read
	return &page{dictionary: true}, err
}

func (p *pages) data(head record, body []byte, full int) (*page, error) {
	b, err := decompress(p.codec, body, full)
	if err != nil {
		return nil, err
	}
	x := &page{count: head.number(1, -1), encoding: head.number(2, -1)}
	for _, level := range []struct {
		highest  int
		encoding int64
		to       **hybrid
	}{{p.leaf.maxRep, head.number(4, -1), &x.rep}, {p.leaf.maxDef, head.number(3, -1), &x.def}} {
		if level.highest == 0 {
			continue
		}
		if level.encoding != rle || len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
			return nil, damaged("the levels of a page of column %s cannot be read", p.leaf.element.bytes(elementName))
		}
		end := 4 + int(binary.LittleEndian.Uint32(b))
		*level.to, b = &hybrid{b: b[4:end], width: width(level.highest)}, b[end:]
	}
	return x, p.fill(x, b)
}

func (p *pages) dataV2(head record, body []byte, full int) (*page, error) {
	x := &page{count: head.number(1, -1), encoding: head.number(4, -1)}
	def, rep := head.number(5, -1), head.number(6, -1)
	if def < 0 || rep < 0 || def > int64(len(body)) || rep > int64(len(body))-def || def+rep > int64(full) {
		return nil, damaged("the levels of a page of column %s cannot be read", p.leaf.element.bytes(elementName))
	}
	if p.leaf.maxRep > 0 {
		x.rep = &hybrid{b: body[:rep], width: width(p.leaf.maxRep)}
	}
	if p.leaf.maxDef > 0 {
		x.def = &hybrid{b: body[rep : rep+def], width: width(p.leaf.maxDef)}
	}
	codec, b := p.codec, body[rep+def:]
	if f := head.get(7); f != nil && f.kind == thriftFalse {
		codec = uncompressed
	}
	full -= int(def + rep)
	if full == 0 { // only nulls: some write no compressed bytes at all
		return x, p.fill(x, nil)
	}
	b, err := decompress(codec, b, full)
	if err != nil {
		return nil, err
	}
	return x, p.fill(x, b)
}

// fill makes the values of a page of its bytes.
func (p *pages) fill(x *page, b []byte) (err error) {
	if x.count < 0 || x.count > p.count {
		return damaged("a page of column %s has more values than the column", p.leaf.element.bytes(elementName))
	}
	p.count -= x.count
	if x.encoding == plainDictionary || x.encoding == dictionaryRLE {
		x.values, err = newIndexes(b, p.dict)
		return err
	}
	if len(b) == 0 { // only nulls
		x.values, x.encoding = &fixed{size: 1}, plain
		return nil
	}
	x.values, err = newValues(p.leaf, x.encoding, b)
	return err
}

// levels are those of the next value of a page.
func (x *page) levels(l *leaf) (rep, def int, err error) {
	var r, d uint32
	if x.rep != nil {
		if r, err = x.rep.next(); err != nil {
			return 0, 0, err
		}
	}
	d = uint32(l.maxDef) //nolint:gosec // a depth
	if x.def != nil {
		if d, err = x.def.next(); err != nil {
			return 0, 0, err
		}
	}
	if int(r) > l.maxRep || int(d) > l.maxDef {
		return 0, 0, damaged("a level of column %s is too high", l.element.bytes(elementName))
	}
	return int(r), int(d), nil
}
