package points

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
)

// setAside renames a segment whose directory is damaged.
func (s *Set) setAside(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	aside, _, err := asideName(path, info)
	if err != nil {
		return err
	}
	if err := os.Rename(path, aside); err != nil {
		return err
	}
	s.o.Log.Error("a segment of metrics is damaged: its points are lost", "segment", path, "renamed", aside)
	return syncParent(path, s.o.NoSync)
}

// asideName is the name under which a damaged segment is kept; kept says that it is already,
// because of an Open before.
func asideName(path string, seg fs.FileInfo) (aside string, kept bool, err error) {
	for i := 1; ; i++ {
		aside = path + ".damaged"
		if i > 1 {
			aside += strconv.Itoa(i) // the number was another segment's before
		}
		other, err := os.Lstat(aside)
		if errors.Is(err, fs.ErrNotExist) {
			return aside, false, nil
		}
		if err != nil || os.SameFile(seg, other) {
			return aside, err == nil, err
		}
	}
}

// lose returns what a merge calls with each damaged chunk of a series, which it leaves out. The
// chunk is reported once, and its segment is kept under another name.
func (s *Set) lose(x *series) func(chunk) error {
	return func(c chunk) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.seg.lost[c.at] {
			return nil
		}
		aside := ""
		if c.seg.lost == nil {
			var err error
			if aside, err = s.keep(c.seg); err != nil {
				return err
			}
			c.seg.lost = map[int64]bool{}
		}
		c.seg.lost[c.at] = true
		s.o.Log.Error("a segment of metrics is damaged: points of a series are lost", "segment", s.segmentPath(c.seg.span), "run", x.owner.name,
			"key", x.key, "points", c.count, "copy", aside)
		return nil
	}
}

// keep gives a segment a second name, which outlives the merge, and returns it.
func (s *Set) keep(seg *segment) (string, error) {
	path := s.segmentPath(seg.span)
	own, err := seg.f.Stat()
	if err != nil {
		return "", err
	}
	aside, kept, err := asideName(path, own)
	if err != nil || kept {
		return aside, err
	}
	if err := os.Link(path, aside); err != nil {
		return "", err
	}
	return aside, syncParent(path, s.o.NoSync)
}
