package points

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"
	"sync"
)

// A frame is a header, the length and CRC-32C of what follows, and records. Frames are written and
// synced one after the other, so that only the last can be torn. A journal is made longer with
// zeros ahead of what is written, because a sync that does not also have to record a new length
// takes half the time; a length of zero is the end.
const (
	frameHeader = 8
	maxFrame    = 1 << 30
	firstRoom   = 64 << 10
	mostRoom    = 4 << 20
)

// castagnoli is made when it is first used: most commands of this program need none.
var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// A journal is the file that is appended to.
type journal struct {
	f      *os.File
	size   int64 // of the frames that are durable
	room   int64 // of the file
	noSync bool
	broken bool // a write failed: what is behind size has to go first
}

func createJournal(path string, noSync bool) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	j := &journal{f: f, noSync: noSync}
	if err := errors.Join(j.grow(firstRoom), syncParent(path, noSync)); err != nil {
		f.Close()
		os.Remove(path)
		return nil, err
	}
	return j, nil
}

// write makes a frame durable; its first bytes are room for the header.
func (j *journal) write(frame []byte) error {
	if j.broken {
		if err := j.repair(); err != nil {
			return err
		}
	}
	if len(frame) > maxFrame {
		return fmt.Errorf("a frame of %d bytes is too large", len(frame))
	}
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)-frameHeader))
	binary.LittleEndian.PutUint32(frame[4:], crc32.Checksum(frame[frameHeader:], castagnoli()))
	end := j.size + int64(len(frame))
	if end+frameHeader > j.room {
		if err := j.grow(end + frameHeader + min(max(j.room, firstRoom), mostRoom)); err != nil {
			j.broken = true
			return err
		}
	}
	_, err := j.f.WriteAt(frame, j.size)
	if err == nil && !j.noSync {
		err = dataSync(j.f)
	}
	if err != nil {
		j.broken = true
		return err
	}
	j.size = end
	return nil
}

// repair cuts off what a failed write may have left.
func (j *journal) repair() error {
	if err := j.f.Truncate(j.size); err != nil {
		return err
	}
	j.room = j.size
	if err := j.f.Sync(); err != nil {
		return err
	}
	j.broken = false
	return nil
}

var zeros [64 << 10]byte

// grow fills the file with zeros up to a size.
func (j *journal) grow(to int64) error {
	for at := j.room; at < to; {
		n, err := j.f.WriteAt(zeros[:min(int64(len(zeros)), to-at)], at)
		if err != nil {
			return err
		}
		at += int64(n)
	}
	j.room = to
	if j.noSync {
		return nil
	}
	return j.f.Sync()
}

// close gives back the room that was not needed.
func (j *journal) close() error {
	var err error
	if !j.broken {
		err = j.f.Truncate(j.size)
	}
	return errors.Join(err, j.f.Close())
}

// openJournal replays a journal and cuts off its torn end, of torn bytes. Each frame is durable
// before the next is written, so a bad one that is not at the end of the last journal is damage:
// the frames behind it are read, nothing is cut off, and a copy of the file is kept, which damaged
// names.
func openJournal(path string, noSync, last bool, name func(id uint64, owner, key string), point func(id uint64, p Point)) (j *journal, torn int64, damaged string, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, "", err
	}
	size, bad := int64(0), false
	for at := int64(0); at >= 0; at = nextFrame(b, size) {
		torn += at - size
		n, err := replay(b[at:], name, point)
		if err != nil {
			return nil, 0, "", fmt.Errorf("journal %s: %w", path, err)
		}
		bad = bad || at > 0
		size = at + n
	}
	if len(bytes.Trim(b[size:], "\x00")) > 0 {
		torn += int64(len(b)) - size
		bad = bad || !last
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if err != nil {
		return nil, 0, "", err
	}
	j = &journal{f: f, size: size, room: int64(len(b)), noSync: noSync}
	switch {
	case bad:
		j.size = int64(len(b))
		damaged, err = copyAside(path, b, noSync)
	case torn > 0:
		err = j.repair()
	}
	if err != nil {
		f.Close()
		return nil, 0, "", err
	}
	return j, torn, damaged, nil
}

// copyAside keeps a copy of a damaged journal and returns its path. One that an Open before has
// made is not made again. It gets its name when it is whole, so that none counts that a full disk
// cut short.
func copyAside(journal string, b []byte, noSync bool) (string, error) {
	path := journal + ".damaged"
	for i := 2; ; i++ {
		kept, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return "", err
		}
		if bytes.Equal(kept, b) {
			return path, nil
		}
		path = journal + ".damaged" + strconv.Itoa(i) // the number was another journal's before
	}
	temp := path + ".new"
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(temp)
		return "", err
	}
	if err := os.Rename(temp, path); err != nil {
		return "", err
	}
	return path, syncParent(path, noSync)
}

// maxSearch bounds the bytes that are summed to find a frame behind a bad one.
const maxSearch = 256 << 20

// nextFrame is where the next whole frame is behind a bad one, -1 when there is none.
func nextFrame(b []byte, from int64) int64 {
	left := maxSearch
	for at := int(from) + 1; at <= len(b)-frameHeader-1 && left > 0; at++ {
		n := int(binary.LittleEndian.Uint32(b[at:]))
		if n == 0 || n > len(b)-at-frameHeader {
			continue
		}
		body := b[at+frameHeader : at+frameHeader+n]
		if body[0] != recordName && body[0] != recordPoint {
			continue
		}
		left -= n
		if crc32.Checksum(body, castagnoli()) == binary.LittleEndian.Uint32(b[at+4:]) {
			return int64(at)
		}
	}
	return -1
}

var errRecord = errors.New("a record does not make sense")

// replay reads the whole frames at the beginning of b and says where they end. A frame whose sum is
// right and whose records are not is not a torn end but damage, and an error.
func replay(b []byte, name func(id uint64, owner, key string), point func(id uint64, p Point)) (int64, error) {
	at := 0
	for len(b)-at >= frameHeader {
		n := int(binary.LittleEndian.Uint32(b[at:]))
		if n == 0 || n > maxFrame || n > len(b)-at-frameHeader {
			break
		}
		body := b[at+frameHeader : at+frameHeader+n]
		if crc32.Checksum(body, castagnoli()) != binary.LittleEndian.Uint32(b[at+4:]) {
			break
		}
		if err := records(body, name, point); err != nil {
			return int64(at), err
		}
		at += frameHeader + n
	}
	return int64(at), nil
}

// records reads the records of a frame.
func records(b []byte, name func(id uint64, owner, key string), point func(id uint64, p Point)) error {
	c := cursor{b: b}
	last := int64(0)
	for len(c.b) > 0 {
		kind := c.byte()
		id := c.uvarint()
		switch kind {
		case recordName:
			owner, key := c.text(), c.text()
			if c.err != nil {
				return c.err
			}
			name(id, owner, key)
		case recordPoint:
			p := Point{Timestamp: last + c.varint(), Step: c.varint(), Value: c.float()}
			if c.err != nil {
				return c.err
			}
			last = p.Timestamp
			point(id, p)
		default:
			return errRecord
		}
	}
	return nil
}

// A cursor reads numbers and texts; the first error stays.
type cursor struct {
	b   []byte
	err error
}

func (c *cursor) fail() {
	c.b, c.err = nil, io.ErrUnexpectedEOF
}

func (c *cursor) byte() byte {
	if len(c.b) == 0 {
		c.fail()
		return 0
	}
	x := c.b[0]
	c.b = c.b[1:]
	return x
}

func (c *cursor) uvarint() uint64 {
	x, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.b = c.b[n:]
	return x
}

func (c *cursor) varint() int64 {
	x, n := binary.Varint(c.b)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.b = c.b[n:]
	return x
}

func (c *cursor) float() float64 {
	if len(c.b) < 8 {
		c.fail()
		return 0
	}
	x := math.Float64frombits(binary.LittleEndian.Uint64(c.b))
	c.b = c.b[8:]
	return x
}

func (c *cursor) point() Point {
	return Point{Timestamp: c.varint(), Step: c.varint(), Value: c.float()}
}

func (c *cursor) text() string {
	n := c.uvarint()
	if n > uint64(len(c.b)) {
		c.fail()
		return ""
	}
	t := string(c.b[:n])
	c.b = c.b[n:]
	return t
}
