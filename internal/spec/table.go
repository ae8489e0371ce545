package spec

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthml/berth"
)

// tableHead begins a table of files' hashes. A record is a name, a zero byte, and numbers.
const tableHead = "berth files 1\n"

// known is a file as it looked when it was hashed.
type known struct {
	size  int64
	stamp stamp
	hash  [sha256.Size]byte
}

const knownSize = 4*8 + sha256.Size

// settled says whether a change after the stamp was taken would show.
func (s stamp) settled(limit int64) bool {
	return s.changed != 0 && s.modified <= limit && s.changed <= limit
}

// sumFiles makes the hash of sorted files of their hashes. It reads those whose hash is not known.
func (u Upload) sumFiles(f *Folder, now time.Time) error {
	u.Hashes(f)
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	fresh := false
	for i := range f.Files {
		file := &f.Files[i]
		if file.Hash != "" {
			continue
		}
		fresh = true
		g.Go(func() error {
			h := sha256.New()
			if err := copyInto(h, *file); err != nil {
				return berth.Errorf(berth.Invalid, "%s: %s", file.Path, reason(err))
			}
			file.Hash = hex.EncodeToString(h.Sum(nil))
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	h := sha256.New()
	fmt.Fprintf(h, "berth folder %d\n", IndexedVersion)
	for i := range f.Files {
		file := &f.Files[i]
		fmt.Fprintf(h, "%s %d %s\x00", file.Hash, file.Size, file.Name)
	}
	f.Hash = hex.EncodeToString(h.Sum(nil))
	if fresh {
		u.saveTable(f, now)
	}
	return nil
}

// Hashes fills in the hashes of files that look as they did when they were hashed.
func (u Upload) Hashes(f *Folder) {
	table := u.loadTable()
	for i := range f.Files {
		file := &f.Files[i]
		if k, ok := table[file.Name]; ok && file.Hash == "" && k.size == file.Size && k.stamp == file.stamp {
			file.Hash = hex.EncodeToString(k.hash[:])
		}
	}
}

func (u Upload) tableFile() string { return u.indexFile() + ".files" }

func (u Upload) loadTable() map[string]known {
	text, err := os.ReadFile(u.tableFile())
	rest, ok := bytes.CutPrefix(text, []byte(tableHead))
	if err != nil || !ok {
		return nil
	}
	table := make(map[string]known, len(rest)/(knownSize+20))
	for len(rest) > 0 {
		name, more, ok := bytes.Cut(rest, []byte{0})
		if !ok || len(more) < knownSize {
			return table
		}
		number := func(i int) int64 { return int64(binary.LittleEndian.Uint64(more[8*i:])) }
		k := known{size: number(0), stamp: stamp{modified: number(1), changed: number(2), inode: uint64(number(3))}}
		copy(k.hash[:], more[4*8:])
		table[string(name)], rest = k, more[knownSize:]
	}
	return table
}

// saveTable keeps the hashes of files that were left alone long enough.
func (u Upload) saveTable(f *Folder, now time.Time) {
	limit := now.Add(-settled).UnixNano()
	b := []byte(tableHead)
	for i := range f.Files {
		file := &f.Files[i]
		hash, err := hex.DecodeString(file.Hash)
		if err != nil || !file.stamp.settled(limit) {
			continue
		}
		b = append(append(b, file.Name...), 0)
		for _, n := range []int64{file.Size, file.stamp.modified, file.stamp.changed, int64(file.stamp.inode)} {
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
		b = append(b, hash...)
	}
	replace(u.tableFile(), b)
}

// maxPlaces is how many places of a folder are kept for one server: the last one, and one whose
// upload may have been cut off.
const maxPlaces = 2

// Places are where a folder was uploaded to in a workspace, newest first. They are given to Sent.
func (u Upload) Places(workspace string) []string {
	if u.Index == "" {
		return nil
	}
	text, err := os.ReadFile(u.placesFile(workspace))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// Sent remembers where a folder is uploaded to.
func (u Upload) Sent(workspace, place string) {
	if u.Index == "" || strings.ContainsAny(place, " \n") {
		return
	}
	old := u.Places(workspace)
	if len(old) > 0 && old[0] == place {
		return
	}
	all := append([]string{place}, slices.DeleteFunc(old, func(p string) bool { return p == place })...)
	replace(u.placesFile(workspace), []byte(strings.Join(all[:min(len(all), maxPlaces)], "\n")+"\n"))
}

func (u Upload) placesFile(workspace string) string {
	return u.indexFile() + "." + hexSum(workspace)[:16]
}
