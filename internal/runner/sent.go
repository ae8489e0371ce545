package runner

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// SentSuffix makes the name of a task's directory that of the file in which Run remembers what it
// has sent. It is beside the directory, not in it: there the command could put a link in its place.
// Whoever removes the directory removes it too.
const SentSuffix = ".sent"

// sent is a file with the names of the files that were sent, so that a restarted runner does not
// send them again.
type sent struct {
	mu   sync.Mutex
	f    *os.File
	have map[string]mark
}

func openSent(path string) (*sent, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	s := &sent{f: f, have: map[string]mark{}}
	if err := s.read(f); err != nil {
		f.Close()
		return nil, err
	}
	return s, nil
}

// longestSent bounds a line of the file: a path is shorter.
const longestSent = 16 << 10

// read reads the names. A crash, or a disk that was full, may have cut a line anywhere: it then
// goes on with the next one, names nothing, and what it was about is sent again.
func (s *sent) read(f io.Reader) error {
	r := bufio.NewReaderSize(f, longestSent)
	for long := false; ; {
		l, err := r.ReadSlice('\n')
		switch {
		case err == bufio.ErrBufferFull:
			long = true
			continue
		case err == io.EOF: // a last name without its end may be half a name
			return nil
		case err != nil:
			return err
		}
		whole := !long
		long = false
		if !whole || len(l) < 3 {
			continue
		}
		switch how := mark(l[0]); how {
		case markSent, markEarly, markGone:
			s.set(how, string(l[1:len(l)-1]))
		}
	}
}

func (s *sent) close() {
	if s != nil {
		s.f.Close()
	}
}

// mark is what the file says of a name.
type mark byte

const (
	markSent  mark = '+' // as it was after the command ended
	markEarly mark = '~' // while the command ran: it may have changed, or be gone
	markGone  mark = '-' // deleted again
)

func (s *sent) set(how mark, name string) {
	if how == markGone {
		delete(s.have, name)
		return
	}
	s.have[name] = how
}

// below is the part about one shipment.
func (s *sent) below(name string) sentBelow { return sentBelow{s, name + "/", markSent} }

// early is the part about one shipment, of what was sent while the command ran.
func (s *sent) early(name string) sentBelow { return sentBelow{s, name + "/", markEarly} }

type sentBelow struct {
	s      *sent
	prefix string
	how    mark
}

func (b sentBelow) Has(rel string) bool {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	return b.s.have[b.prefix+rel] == b.how
}

func (b sentBelow) Add(rel string) { b.write(b.how, rel) }

func (b sentBelow) forget(rel string) { b.write(markGone, rel) }

func (b sentBelow) write(how mark, rel string) {
	if strings.ContainsRune(rel, '\n') {
		return
	}
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.s.set(how, b.prefix+rel)
	_, _ = b.s.f.WriteString(string(how) + b.prefix + rel + "\n") // forgotten, it is sent again
}

// some are the shipments of which something was sent.
func (s *sent) some(list []shipment) (out []shipment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range list {
		for name := range s.have {
			if strings.HasPrefix(name, x.name+"/") {
				out = append(out, x)
				break
			}
		}
	}
	return out
}

// names are those of what has the mark.
func (b sentBelow) names() (list []string) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	for name, how := range b.s.have {
		if rel, ok := strings.CutPrefix(name, b.prefix); ok && how == b.how {
			list = append(list, rel)
		}
	}
	slices.Sort(list)
	return list
}
