package points

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"slices"
	"strconv"
)

// A segment is a mark, chunks, a directory and a trailer: the directory's offset, its CRC-32C, and
// the mark again. A chunk is points of one series, sorted: its CRC-32C, then timestamps and steps
// as differences of differences, then values. A long series has several.
const (
	segmentMark    = "BERTHPT2"
	oldSegmentMark = "BERTHPT1" // its directory does not have the first point of a chunk
	segmentTrailer = 8 + 4 + len(segmentMark)
	chunkHeader    = 4
	// maxChunk is how many points a chunk has at most: readers have whole chunks in memory.
	maxChunk = 16 << 10
)

// A segment is an open file of chunks. It never changes.
type segment struct {
	f    *os.File
	size int64
	span span
	lost map[int64]bool // damaged chunks that were reported, by where they are; see Set.lose
}

// A chunk is points of a series in one segment.
type chunk struct {
	seg   *segment
	at    int64
	size  int32
	count int32
	first Point // nothing in the chunk is before it
}

var errSegment = errors.New("the segment is damaged")

// load reads the chunk's bytes, into b where there is room, and checks them.
func (c chunk) load(b []byte) ([]byte, error) {
	b = slices.Grow(b[:0], int(c.size))[:c.size]
	if _, err := c.seg.f.ReadAt(b, c.at); err != nil {
		return nil, fmt.Errorf("%s: %w", c.seg.f.Name(), err)
	}
	if len(b) < chunkHeader || crc32.Checksum(b[chunkHeader:], castagnoli()) != binary.LittleEndian.Uint32(b) {
		return nil, c.damaged()
	}
	return b, nil
}

func (c chunk) damaged() error { return fmt.Errorf("%s at %d: %w", c.seg.f.Name(), c.at, errSegment) }

func encodeChunk(b []byte, p []Point) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	var last, step int64
	for i := range p {
		d := p[i].Timestamp - last
		b = binary.AppendVarint(b, d-step)
		last, step = p[i].Timestamp, d
	}
	last, step = 0, 0
	for i := range p {
		d := p[i].Step - last
		b = binary.AppendVarint(b, d-step)
		last, step = p[i].Step, d
	}
	for i := range p {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(p[i].Value))
	}
	binary.LittleEndian.PutUint32(b[start:], crc32.Checksum(b[start+chunkHeader:], castagnoli()))
	return b
}

// A part is one series of a segment that is written.
type part struct {
	x      *series
	points []Point // sorted, each once
}

// A segmentWriter writes a segment, a chunk after the other.
type segmentWriter struct {
	path, temp string
	seg        *segment
	w          *bufio.Writer
	at         int64
	buf, dir   []byte
	chunks     int
	noSync     bool
}

func createSegment(path string, noSync bool) (*segmentWriter, error) {
	temp := path + ".new" + strconv.Itoa(os.Getpid()) // see Options.Leads
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	w := &segmentWriter{path: path, temp: temp, seg: &segment{f: f}, w: bufio.NewWriterSize(f, 256<<10), at: int64(len(segmentMark)), noSync: noSync}
	w.w.WriteString(segmentMark) //nolint:errcheck // Flush says it
	return w, nil
}

// add writes the points of a series, sorted and each once, as chunks.
func (w *segmentWriter) add(x *series, points []Point) (chunks []chunk) {
	for some := range slices.Chunk(points, maxChunk) {
		chunks = append(chunks, w.chunk(x, some))
	}
	return chunks
}

func (w *segmentWriter) chunk(x *series, points []Point) chunk {
	w.buf = encodeChunk(w.buf[:0], points)
	c := chunk{seg: w.seg, at: w.at, size: int32(len(w.buf)), count: int32(len(points)), first: points[0]}
	latest := points[0]
	for _, q := range points[1:] {
		if newer(q, latest) {
			latest = q
		}
	}
	w.w.Write(w.buf) //nolint:errcheck // Flush says it
	w.at += int64(len(w.buf))
	w.chunks++
	dir := appendText(w.dir, x.owner.name)
	dir = appendText(dir, x.key)
	dir = binary.AppendUvarint(dir, uint64(c.at))
	dir = binary.AppendUvarint(dir, uint64(c.size))
	dir = binary.AppendUvarint(dir, uint64(c.count))
	w.dir = appendPoint(appendPoint(dir, latest), c.first)
	return c
}

func appendPoint(b []byte, p Point) []byte {
	b = binary.AppendVarint(b, p.Timestamp)
	b = binary.AppendVarint(b, p.Step)
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(p.Value))
}

// discard gives the segment up.
func (w *segmentWriter) discard() {
	w.seg.f.Close()
	os.Remove(w.temp)
}

// finish makes the segment durable under its name.
func (w *segmentWriter) finish() (_ *segment, err error) {
	defer func() {
		if err != nil {
			w.discard()
		}
	}()
	dir := append(binary.AppendUvarint(nil, uint64(w.chunks)), w.dir...)
	sum := crc32.Checksum(dir, castagnoli())
	dir = binary.LittleEndian.AppendUint64(dir, uint64(w.at))
	dir = binary.LittleEndian.AppendUint32(dir, sum)
	w.w.Write(dir)               //nolint:errcheck // Flush says it
	w.w.WriteString(segmentMark) //nolint:errcheck // Flush says it
	if err := w.w.Flush(); err != nil {
		return nil, err
	}
	if !w.noSync {
		if err := w.seg.f.Sync(); err != nil {
			return nil, err
		}
	}
	w.seg.size = w.at + int64(len(dir)+len(segmentMark))
	if err := os.Rename(w.temp, w.path); err != nil {
		return nil, err
	}
	return w.seg, syncParent(w.path, w.noSync)
}

// writeSegment makes a segment durable under its name and returns its chunks, in the order of the
// parts.
func writeSegment(path string, parts []part, noSync bool) (*segment, [][]chunk, error) {
	w, err := createSegment(path, noSync)
	if err != nil {
		return nil, nil, err
	}
	chunks := make([][]chunk, len(parts))
	for i, p := range parts {
		chunks[i] = w.add(p.x, p.points)
	}
	seg, err := w.finish()
	return seg, chunks, err
}

// An entry is what the directory of a segment has of a chunk.
type entry struct {
	owner, key string
	chunk      chunk
	latest     Point
}

// openSegment reads the directory of a segment.
func openSegment(path string) (_ *segment, entries []entry, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
			err = fmt.Errorf("segment %s: %w", path, err)
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	size := info.Size()
	trailer := make([]byte, segmentTrailer)
	if size < int64(len(segmentMark)+segmentTrailer) {
		return nil, nil, errSegment
	}
	if _, err := f.ReadAt(trailer, size-int64(segmentTrailer)); err != nil {
		return nil, nil, err
	}
	at := binary.LittleEndian.Uint64(trailer)
	mark := string(trailer[12:])
	if mark != segmentMark && mark != oldSegmentMark || at > uint64(size-int64(segmentTrailer)) {
		return nil, nil, errSegment
	}
	dir := make([]byte, size-int64(segmentTrailer)-int64(at))
	if _, err := f.ReadAt(dir, int64(at)); err != nil {
		return nil, nil, err
	}
	if crc32.Checksum(dir, castagnoli()) != binary.LittleEndian.Uint32(trailer[8:]) {
		return nil, nil, errSegment
	}
	seg := &segment{f: f, size: size}
	c := cursor{b: dir}
	for range c.uvarint() {
		owner, key := c.text(), c.text()
		x := chunk{seg: seg, at: int64(c.uvarint()), size: int32(c.uvarint()), count: int32(c.uvarint())}
		latest := c.point()
		x.first = Point{Timestamp: math.MinInt64, Step: math.MinInt64, Value: math.Inf(-1)}
		if mark == segmentMark {
			x.first = c.point()
		}
		if c.err != nil || x.at < 0 || x.size < 0 || x.count < 0 || x.at+int64(x.size) > int64(at) {
			return nil, nil, errSegment
		}
		entries = append(entries, entry{owner, key, x, latest})
	}
	if c.err != nil {
		return nil, nil, errSegment
	}
	return seg, entries, nil
}
