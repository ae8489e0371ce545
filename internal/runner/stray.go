package runner

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/berthml/berth"
)

// Bounds of the look for files that go with the task's directory: it costs no job noticeable time.
const (
	strayEntries = 5000
	strayTime    = 100 * time.Millisecond
	strayNamed   = 3
	strayName    = 80 // bytes of a name that are shown
)

// stray says which files the command made beside its code, where nothing is kept; empty when there
// are none. Where the code is the lower layer of an overlay, its place shows only what was changed.
func (t *task) stray() string {
	if t.l.Code == "" || t.l.Serves || t.times.Started.IsZero() {
		return ""
	}
	dir, err := os.OpenRoot(t.o.Dir)
	if err != nil {
		return "" // there is nothing to look at
	}
	defer dir.Close()
	if st, err := dir.Lstat("wd"); err != nil || !st.IsDir() {
		return ""
	}
	wd, err := dir.OpenRoot("wd")
	if err != nil {
		return ""
	}
	defer wd.Close()
	s := strays{left: strayEntries, until: time.Now().Add(strayTime), since: t.times.Started, code: sync.OnceValue(t.codeFiles)}
	s.look(wd, "")
	if s.count == 0 {
		return ""
	}
	slices.Sort(s.names)
	names := s.names
	more, least := "", ""
	if s.count > strayNamed {
		names, more = names[:strayNamed], ", …"
	}
	if s.cut {
		least = "at least "
	}
	files, were, them := "files", "were", "them"
	if s.count == 1 {
		files, were, them = "file", "was", "it"
	}
	return fmt.Sprintf("%s%d %s written outside ./outputs %s not kept (%s%s): write %s to ./outputs, or to a named output", least, s.count, files, were, strings.Join(names, ", "), more, them)
}

// codeFiles are the files of the code, nil where they are not known: that is so when another runner
// brought them, or no cache did.
func (t *task) codeFiles() map[string]bool {
	for _, x := range t.trees {
		if x.to != t.workdir() || x.use.Tree == nil {
			continue
		}
		names := make(map[string]bool, len(x.use.Tree.Files))
		for i := range x.use.Tree.Files {
			names[x.use.Tree.Files[i].Path] = true
		}
		return names
	}
	return nil
}

// strays is a look for files.
type strays struct {
	left  int // entries that may still be looked at
	until time.Time
	since time.Time              // when the command began
	code  func() map[string]bool // the files that were brought; asked only where there is a file
	count int
	names []string
	cut   bool // it did not see everything
}

// look goes through a folder that is called at/. What cannot be read is nobody's loss.
func (s *strays) look(dir *os.Root, at string) {
	f, err := dir.Open(".")
	if err != nil {
		return
	}
	defer f.Close()
	for !s.cut {
		entries, err := f.ReadDir(256)
		for _, e := range entries {
			if s.left--; s.left < 0 || time.Now().After(s.until) {
				s.cut = true
				return
			}
			s.entry(dir, path.Join(at, e.Name()), e)
		}
		if err != nil {
			return
		}
	}
}

func (s *strays) entry(dir *os.Root, name string, e os.DirEntry) {
	base := e.Name()
	if base[0] == '.' || berth.IsByTools(base) {
		return
	}
	if e.IsDir() {
		if berth.IsKept(name) {
			return
		}
		if sub, err := dir.OpenRoot(base); err == nil {
			s.look(sub, name)
			sub.Close()
		}
		return
	}
	if !e.Type().IsRegular() {
		return
	}
	if code := s.code(); code == nil || code[name] {
		if st, err := dir.Lstat(base); err != nil || !st.ModTime().After(s.since) {
			return
		}
	}
	s.count++
	if s.names = append(s.names, shortName(name)); len(s.names) > 2*strayNamed+10 {
		slices.Sort(s.names)
		s.names = s.names[:strayNamed]
	}
}

// shortName is a name as people can read it.
func shortName(name string) string {
	if len(name) > strayName {
		cut := len(name) - strayName
		for cut < len(name) && !utf8.RuneStart(name[cut]) {
			cut++
		}
		name = "…" + name[cut:]
	}
	if strconv.CanBackquote(name) && !strings.ContainsRune(name, '\t') {
		return name
	}
	return strconv.Quote(name)
}
