package blob

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// BlockAge is how long the blocks of an upload that is not committed are kept after the last of
// them came.
const BlockAge = 7 * 24 * time.Hour

// MaxBlocks is how many blocks one blob may be made of.
const MaxBlocks = 50_000

const maxBlockID = 100

// A staged block is its bytes and then a trailer: length, CRC-32C and a mark. The trailer makes a
// sync per block unnecessary: a block that a power cut tore is found out when it is committed, and
// counts as never uploaded.
const (
	trailerSize = 16
	trailerMark = 0x6b6c6221
)

// castagnoli is made when it is first used: most commands of this program need none.
var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// A Block is a staged block.
type Block struct {
	ID   string
	Size int64
}

// stageKey is the directory below blocks for a writer's uploads to a name. Nobody commits what
// somebody else staged.
func stageKey(ctx context.Context, container, name string) string {
	return stagePrefix(container) + placeKey(container, name, writer(ctx))
}

// stagePrefix is what the directories of all uploads to a container begin with.
func stagePrefix(container string) string { return placeKey(container)[:16] + "-" }

// Staged is how many uploads to a container are not committed, and what their blocks take of the
// disk.
func (s *Store) Staged(container string) (uploads int, bytes int64, err error) {
	dirs, err := os.ReadDir(filepath.Join(s.dir, "blocks"))
	if err != nil {
		return 0, 0, err
	}
	for _, dir := range dirs {
		if !strings.HasPrefix(dir.Name(), stagePrefix(container)) {
			continue
		}
		blocks, err := os.ReadDir(s.stage(dir.Name()))
		if ignoreMissing(err) != nil {
			return 0, 0, err
		}
		uploads++
		for _, b := range blocks {
			if info, err := b.Info(); err == nil { // else it was committed meanwhile
				bytes += (info.Size() + diskBlock - 1) / diskBlock * diskBlock
			}
		}
	}
	return uploads, bytes, nil
}

// diskBlock is what a file takes of a disk at least.
const diskBlock = 4096

func (s *Store) stage(key string) string { return filepath.Join(s.dir, "blocks", key) }

func blockFile(id string) string { return hex.EncodeToString([]byte(id)) }

// PutBlock stages a block of an upload in parts. Blocks may come in any order and at the same time;
// one that comes again replaces the one before. They outlive the process.
func (s *Store) PutBlock(ctx context.Context, container, name, blockID string, r io.Reader) error {
	return s.PutBlockChecked(ctx, container, name, blockID, r, PutOptions{})
}

// PutBlockChecked is PutBlock with the Size and MD5 of the block.
func (s *Store) PutBlockChecked(ctx context.Context, container, name, blockID string, r io.Reader, o PutOptions) error {
	if err := checkNames(container, name); err != nil {
		return err
	}
	if blockID == "" || len(blockID) > maxBlockID {
		return &berth.Error{Code: berth.Invalid, Wire: "InvalidBlockId", Msg: fmt.Sprintf("a block id has 1 to %d characters", maxBlockID)}
	}
	if err := s.room(o.Size); err != nil {
		return err
	}
	if err := s.mayAdd(ctx, container, name); err != nil {
		return err
	}
	t, err := s.newTemp()
	if err != nil {
		return s.diskError("staging a block", err)
	}
	defer t.discard()
	if err := s.writeBlock(ctx, t, r, o); err != nil {
		return err
	}
	return s.diskError("staging a block", s.stageBlock(t, stageKey(ctx, container, name), blockID))
}

func (s *Store) stageBlock(t *temp, key, id string) (err error) {
	s.staging.Lock()
	defer s.staging.Unlock()
	dir := s.stage(key)
	for range 3 { // another process may take the directory away in between
		if err = os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err = os.Rename(t.Name(), filepath.Join(dir, blockFile(id))); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

func (s *Store) writeBlock(ctx context.Context, t *temp, r io.Reader, o PutOptions) error {
	buf := buffers.Get().(*[small]byte)
	defer buffers.Put(buf)
	sum := newBlockSums(len(o.MD5) > 0)
	var size int64
	for {
		n, err := fill(r, buf[:])
		if err != nil && err != io.EOF {
			return readError(err)
		}
		sum.Write(buf[:n])
		size += int64(n)
		if _, err := t.Write(buf[:n]); err != nil {
			return s.diskError("staging a block", err)
		}
		if err == io.EOF {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if err := o.check(sum.content(size)); err != nil {
		return err
	}
	var trailer [trailerSize]byte
	binary.BigEndian.PutUint64(trailer[:], uint64(size))
	binary.BigEndian.PutUint32(trailer[8:], sum.crc)
	binary.BigEndian.PutUint32(trailer[12:], trailerMark)
	if _, err := t.Write(trailer[:]); err != nil {
		return s.diskError("staging a block", err)
	}
	return nil
}

// Blocks lists the blocks that a writer staged for a name, in no order that matters.
func (s *Store) Blocks(ctx context.Context, container, name string) ([]Block, error) {
	if err := checkNames(container, name); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.stage(stageKey(ctx, container, name)))
	if ignoreMissing(err) != nil {
		return nil, err
	}
	var blocks []Block
	for _, e := range entries {
		id, err := hex.DecodeString(e.Name())
		info, ierr := e.Info()
		if err == nil && ierr == nil && info.Size() >= trailerSize {
			blocks = append(blocks, Block{string(id), info.Size() - trailerSize})
		}
	}
	return blocks, nil
}

// dropBlocks forgets what is staged: all of it at once, and nothing that is staged later.
func (s *Store) dropBlocks(key string) error {
	name := tempName()
	gone := filepath.Join(s.dir, "tmp", name)
	s.useTemp(name)
	defer s.forgetTemp(name)
	s.staging.Lock()
	err := os.Rename(s.stage(key), gone)
	s.staging.Unlock()
	if err != nil {
		return ignoreMissing(err)
	}
	return os.RemoveAll(gone)
}

// openBlock opens a staged block and checks its trailer; the bytes are checked by whoever reads
// them all.
func (s *Store) openBlock(key, id string) (f *os.File, size int64, crc uint32, err error) {
	bad := &berth.Error{Code: berth.Invalid, Wire: "InvalidBlockList", Msg: fmt.Sprintf("block %s was not uploaded", quote(id))}
	if id == "" || len(id) > maxBlockID {
		return nil, 0, 0, bad
	}
	f, err = os.Open(filepath.Join(s.stage(key), blockFile(id)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, 0, bad
	}
	if err != nil {
		return nil, 0, 0, err
	}
	info, err := f.Stat()
	var trailer [trailerSize]byte
	if err == nil && info.Size() >= trailerSize {
		_, err = f.ReadAt(trailer[:], info.Size()-trailerSize)
	}
	size = int64(binary.BigEndian.Uint64(trailer[:]))
	if err == nil && (binary.BigEndian.Uint32(trailer[12:]) != trailerMark || size != info.Size()-trailerSize) {
		err = bad
	}
	if err != nil {
		f.Close()
		return nil, 0, 0, err
	}
	return f, size, binary.BigEndian.Uint32(trailer[8:]), nil
}

// blockSums checks a block, and computes its MD5 where one was announced.
type blockSums struct {
	crc uint32
	md5 *sums
}

func newBlockSums(wantMD5 bool) *blockSums {
	if !wantMD5 {
		return &blockSums{}
	}
	return &blockSums{md5: newSums(true)}
}

func (b *blockSums) Write(p []byte) {
	b.crc = crc32.Update(b.crc, castagnoli(), p)
	if b.md5 != nil {
		_, _ = b.md5.Write(p)
	}
}

func (b *blockSums) content(size int64) content {
	if b.md5 == nil {
		return content{size: size}
	}
	return b.md5.content(size)
}
