package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/berthml/berth"
)

// Terms keeps out servers that lead no more, see [berth.WithTerm]. The latest term that was seen is kept in DIR/term: it has to
// outlive the host, and nothing more.
type Terms struct {
	Dir string

	mu     sync.Mutex
	read   bool
	latest int64
}

// Admit refuses a term that is over, and notes one that has begun. 0 is from a server that is the only one.
func (t *Terms) Admit(term int64) (begun bool, err error) {
	if term == 0 {
		return false, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	path := filepath.Join(t.Dir, "term")
	if !t.read {
		b, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, berth.Errorf(berth.Unavailable, "which server leads is not known: %w", err)
		}
		t.latest, _ = strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64) // none is before the first
		t.read = true
	}
	switch {
	case term == t.latest:
		return false, nil
	case term < t.latest:
		return false, berth.Errorf(berth.Unavailable, "another server leads since term %d, and term %d is over (%s)", t.latest, term, path)
	}
	if err := os.WriteFile(path+".new", strconv.AppendInt(nil, term, 10), 0o600); err != nil {
		return false, berth.Errorf(berth.Unavailable, "the server's term cannot be kept: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return false, berth.Errorf(berth.Unavailable, "the server's term cannot be kept: %w", err)
	}
	t.latest = term
	return true, nil
}

// admit is [Terms.Admit] for the host itself. When a term has begun, what is on its way to the server before is sent again: that one may
// have stopped answering, or know nothing of its end.
func (w *worker) admit(term int64) error {
	begun, err := w.terms.Admit(term)
	if begun {
		for _, h := range w.homes {
			h.Again()
			w.senders.Go(h.Close)
		}
	}
	return err
}
