package points

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Open opens the points in dir; a directory that does not exist is made with the first of them.
func Open(dir string, o Options) (_ *Set, err error) {
	if o.JournalSize <= 0 {
		o.JournalSize = defaultJournalSize
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Set{dir: dir, o: o, owners: map[string]*owner{}, keys: map[string]*key{}, followed: map[string]*follow{}, gen: 1, number: 1, pause: retryPause}
	s.idle = sync.NewCond(&s.mu)
	segments, journals, unfinished, err := files(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range unfinished { // only here: later they are those of a process that has opened the points since
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	covered, err := s.openSegments(segments)
	if err != nil {
		return nil, err
	}
	s.number = covered + 1
	for i, n := range journals {
		if n <= covered { // a crash came between the segment and the end of its journals
			if err := os.Remove(s.path(n, "log")); err != nil {
				return nil, err
			}
			continue
		}
		if err := s.replay(n, i == len(journals)-1); err != nil {
			return nil, err
		}
	}
	if s.sealed {
		s.compact(s.number - 1)
	}
	return s, nil
}

// openSegments opens segments and returns the number of the last journal that they cover. Those
// whose points are in a merged one, because a crash came before they were removed, are removed. One
// with a damaged directory is set aside and covers nothing: what it was made of is read if it is
// still there.
func (s *Set) openSegments(segments []span) (covered uint64, err error) {
	for _, n := range segments {
		path := s.segmentPath(n)
		if n.last <= covered {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return 0, err
			}
			continue
		}
		seg, entries, err := openSegment(path)
		if errors.Is(err, errSegment) {
			err = s.setAside(path)
			if err == nil {
				continue
			}
		}
		if err != nil {
			return 0, err
		}
		for _, e := range entries {
			x := s.at(e.owner, e.key)
			s.setChunks(x, append(x.chunks, e.chunk))
			x.sum(e.latest, int64(e.chunk.count))
		}
		seg.span = n
		s.segments = append(s.segments, seg)
		covered = n.last
	}
	return covered, nil
}

// replay brings a journal into memory. None is written on: series get their ids anew at each Open,
// and in one journal an id is that of one series.
func (s *Set) replay(n uint64, last bool) error {
	names, nameless := map[uint64]*series{}, 0
	j, torn, damaged, err := openJournal(s.path(n, "log"), s.o.NoSync, last, func(id uint64, name, key string) {
		names[id] = s.at(name, key)
	}, func(id uint64, p Point) {
		if x := names[id]; x != nil {
			s.add(x, p)
		} else {
			nameless++
		}
	})
	if err != nil {
		return err
	}
	if damaged != "" || nameless > 0 {
		s.o.Log.Error("a journal of metrics is damaged: points are lost, those of damaged records and those whose series such a record names; "+
			"the others were read", "journal", s.path(n, "log"), "bytes", torn, "nameless", nameless, "copy", damaged)
	} else if torn > 0 {
		s.o.Log.Warn("a torn end of a journal of metrics was cut off; nobody was told that it was kept", "journal", s.path(n, "log"), "bytes", torn)
	}
	s.seal()
	s.number = n + 1
	return j.close()
}

// path is the file of a number.
func (s *Set) path(n uint64, ext string) string {
	return filepath.Join(s.dir, fmt.Sprintf("%08d.%s", n, ext))
}

// A span is the journals whose points a segment has.
type span struct{ first, last uint64 }

// segmentPath is the file of a segment: N.seg, or FIRST-LAST.seg of one that several became.
func (s *Set) segmentPath(n span) string {
	if n.first == n.last {
		return s.path(n.last, "seg")
	}
	return filepath.Join(s.dir, fmt.Sprintf("%08d-%08d.seg", n.first, n.last))
}

// files lists a directory by number, and the names of segments that were not finished.
func files(dir string) (segments []span, journals []uint64, unfinished []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, nil, nil, err
		}
		return nil, nil, nil, syncParent(dir, false)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	for _, e := range entries {
		n, ext, ok := parseName(e.Name())
		if !ok {
			continue
		}
		switch {
		case ext == "seg":
			segments = append(segments, n)
		case ext == "log":
			journals = append(journals, n.first)
		case strings.HasPrefix(ext, "seg.new"):
			unfinished = append(unfinished, e.Name())
		}
	}
	slices.SortFunc(segments, func(a, b span) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(b.last, a.last)) })
	slices.Sort(journals)
	return segments, journals, unfinished, nil
}

// parseName parses the name of a file: N.EXT or FIRST-LAST.EXT.
func parseName(file string) (n span, ext string, ok bool) {
	name, ext, _ := strings.Cut(file, ".")
	first, last, merged := strings.Cut(name, "-")
	from, err := strconv.ParseUint(first, 10, 63)
	to := from
	if err == nil && merged {
		to, err = strconv.ParseUint(last, 10, 63)
	}
	return span{from, to}, ext, err == nil
}

// Files returns the files in dir that have points, which another process may have open: no copies
// of damaged files, and no files that are being written by a merge.
func Files(dir string) ([]fs.FileInfo, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []fs.FileInfo
	for _, e := range entries {
		if _, ext, ok := parseName(e.Name()); !ok || ext != "seg" && ext != "log" {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // merged into another meanwhile
		}
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() && info.Size() > 0 {
			out = append(out, info)
		}
	}
	return out, err
}

// retryPause is how long nothing is compacted after an error: most often the disk is full.
const retryPause = time.Minute

// rotate begins another journal, once the points of the one before are in a segment. The caller
// holds mu and writes.
func (s *Set) rotate() {
	if s.sealed { // the last one is not compacted yet; this one may grow meanwhile
		if s.failed && time.Since(s.failedAt) >= s.pause {
			s.failed = false
			s.compact(s.number - 1)
		}
		return
	}
	if err := s.journal.close(); err != nil {
		s.o.Log.Error("a journal of metrics did not close", "err", err)
	}
	s.journal = nil
	s.seal()
	s.compact(s.number)
	s.number++
	s.gen++
	if s.next != nil {
		s.next.rename(s.gen)
	}
}

// seal sets the recent points aside.
func (s *Set) seal() {
	for _, x := range s.touched {
		if len(x.sealed) == 0 {
			s.aside = append(s.aside, x)
		}
		x.sealed = append(x.sealed, x.recent...)
		x.recent = nil
	}
	s.touched, s.sealed = nil, true
}

// compact makes a segment of the sealed points, those of the journals up to n, in the background.
func (s *Set) compact(n uint64) {
	parts := make([]part, len(s.aside))
	for i, x := range s.aside {
		parts[i] = part{x, slices.Clone(x.sealed)}
	}
	s.compacted.Go(func() {
		if err := s.writeParts(n, parts); err != nil {
			// The points are in the journals still, and in memory; rotate and Open try again.
			s.o.Log.Error("points of metrics were not compacted", "dir", s.dir, "err", err)
			s.mu.Lock()
			s.failed, s.failedAt = true, time.Now()
			s.idle.Broadcast()
			s.mu.Unlock()
			return
		}
		if err := s.merge(); err != nil {
			s.o.Log.Error("segments of metrics were not merged", "dir", s.dir, "err", err)
		}
	})
}

func (s *Set) writeParts(n uint64, parts []part) error {
	if len(parts) > 0 {
		for i := range parts {
			parts[i].points = tidy(parts[i].points)
		}
		seg, chunks, err := writeSegment(s.path(n, "seg"), parts, s.o.NoSync)
		if err != nil {
			return err
		}
		seg.span = span{n, n}
		s.mu.Lock()
		s.segments = append(s.segments, seg)
		for i, p := range parts {
			p.x.count -= int64(len(p.x.sealed) - len(p.points))
			s.setChunks(p.x, append(p.x.chunks, chunks[i]...))
			p.x.sealed = nil
		}
		s.aside = nil
		s.mu.Unlock()
	}
	_, journals, _, err := files(s.dir)
	if err != nil {
		return err
	}
	for _, j := range journals {
		if j <= n {
			if err := os.Remove(s.path(j, "log")); err != nil {
				return err
			}
		}
	}
	s.mu.Lock()
	s.sealed = false
	s.idle.Broadcast()
	s.mu.Unlock()
	return nil
}
