package spec

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// An index remembers the hash of a folder beside what its files looked like to stat when it was
// made: their names, sizes, times and inodes. A folder that looks the same is the same, and is not
// read again. Beside that is a table of the hashes of its files, so that of a folder that was
// changed only the changed files are read, and where the folder was uploaded to.

// settled is how long a file must have been left alone before its looks are believed: a file
// system's clock may stand still for some milliseconds, and a change within them would not show.
const settled = 100 * time.Millisecond

// looks is what stat says of the files of a sorted folder; ok is false when a change could have
// escaped it.
func (f *Folder) looks(now time.Time) (sum string, ok bool) {
	h := sha256.New()
	limit := now.Add(-settled).UnixNano()
	var b []byte
	for i := range f.Files {
		file := &f.Files[i]
		b = append(b[:0], file.Name...)
		b = append(b, 0)
		b = append(b, file.Path...)
		b = append(b, 0)
		for _, n := range []int64{file.Size, file.stamp.modified, file.stamp.changed, int64(file.stamp.inode)} {
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
		h.Write(b)
		if !file.stamp.settled(limit) {
			return "", false
		}
	}
	return hex.EncodeToString(h.Sum(nil)), true
}

// Label gives what List listed a name of its own in place of its hash, so that nothing is read: the
// one it had when it looked as it does now, or else a new one. Two uploads of the same content have
// different labels.
func (u Upload) Label(f *Folder) error {
	if len(f.strays) > 0 {
		return u.Sum(f) // says what is wrong
	}
	f.sort()
	f.HashVersion = IndexedVersion
	looks, settled := f.looks(time.Now())
	if settled {
		if f.Hash = u.recall(looks); f.Hash != "" {
			return nil
		}
	}
	var random [sha256.Size]byte
	_, _ = rand.Read(random[:]) // never fails
	f.Hash = hex.EncodeToString(random[:])
	if settled {
		u.remember(looks, f.Hash)
	}
	return nil
}

// indexFile is where the hash of a folder is kept.
func (u Upload) indexFile() string {
	if u.Index == "" {
		return ""
	}
	place, err := filepath.Abs(u.Path)
	if err != nil {
		return ""
	}
	return filepath.Join(u.Index, hexSum(fmt.Sprint(IndexedVersion, "\x00", place, "\x00", strings.Join(u.Includes, "\x00"))))
}

// indexBelow is where the index is in the folder, "" where it is not.
func (u Upload) indexBelow() string {
	if u.Index == "" || u.Path == "" {
		return ""
	}
	dir, err := filepath.Abs(u.Path)
	if err != nil {
		return ""
	}
	index := u.Index
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	if real, err := filepath.EvalSymlinks(index); err == nil {
		index = real
	}
	rel, err := filepath.Rel(dir, index)
	if err != nil || !filepath.IsLocal(rel) || rel == "." {
		return ""
	}
	return filepath.ToSlash(rel)
}

// recall is the hash of a folder that looks as it did, "" when it is not known.
func (u Upload) recall(looks string) string {
	text, err := os.ReadFile(u.indexFile())
	if err != nil {
		return ""
	}
	known, hash, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if known != looks || len(hash) != 2*sha256.Size {
		return ""
	}
	return hash
}

// remember keeps the hash of a folder. It is not needed: what is not known is read.
func (u Upload) remember(looks, hash string) {
	file := u.indexFile()
	replace(file, []byte(looks+" "+hash+"\n"))
	sweepIndex(filepath.Dir(file))
}

// forget removes what is known of the hashes of a folder and of its files.
func (u Upload) forget() {
	if u.Index != "" {
		os.Remove(u.indexFile())
		os.Remove(u.tableFile())
	}
}

// replace writes a file of the index, if that can be done.
func replace(file string, text []byte) {
	if os.MkdirAll(filepath.Dir(file), 0o700) != nil {
		return
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), "new-")
	if err != nil {
		return
	}
	_, err = tmp.Write(text)
	if tmp.Close() != nil || err != nil || os.Rename(tmp.Name(), file) != nil {
		_ = os.Remove(tmp.Name())
	}
}

// sweepIndex removes what is known of folders that were not looked at for long.
func sweepIndex(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > 90*24*time.Hour {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
