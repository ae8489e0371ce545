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

// Terms keeps out servers that lead no more, see [berth.WithTerm]. Each term that was seen is a
// file DIR/term.N.SIGNATURE, so that several processes can note terms at the same time, and none
// takes a later one back. They have to outlive the host, and nothing more. Tasks can write there:
// the signature shows that a file was not made by one of them.
type Terms struct {
	Dir string

	mu     sync.Mutex
	latest int64  // that was admitted here
	proof  string // of it
}

const termPrefix = "term."

// Admit refuses a term that is over, and notes one that has begun. 0 is from a server that is the
// only one.
func (t *Terms) Admit(term int64, proof string) (begun bool, err error) {
	if term == 0 {
		return false, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if term == t.latest {
		return false, nil
	}
	sig := berth.TermSignature(proof)
	if proof != "" && !berth.SameServers(proof, term, sig) {
		return false, berth.Errorf(berth.Denied, "the proof of term %d does not belong to it", term)
	}
	// A term without a proof never outranks one with it.
	if t.proof != "" && proof == "" || term < t.latest && t.proof == "" && proof == "" ||
		term < t.latest && berth.SameServers(proof, t.latest, berth.TermSignature(t.proof)) {
		return false, past(term, t.latest)
	}
	if err := t.look(term, proof); err != nil {
		return false, err
	}
	path := filepath.Join(t.Dir, strings.TrimSuffix(termPrefix+strconv.FormatInt(term, 10)+"."+sig, "."))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if begun = err == nil; begun {
		f.Close() // nothing was written
	} else if !errors.Is(err, fs.ErrExist) {
		return false, berth.Errorf(berth.Unavailable, "the server's term cannot be kept: %w", err)
	}
	if err := t.look(term, proof); err != nil { // another process may have noted a later one meanwhile
		return false, err
	}
	t.latest, t.proof = term, proof
	return begun, nil
}

func past(term, latest int64) error {
	return berth.Errorf(berth.Unavailable, "another server leads since term %d, and term %d is over", latest, term)
}

// look refuses a term when a later one was noted, and removes earlier ones and those that no server
// gave out.
func (t *Terms) look(term int64, proof string) error {
	entries, err := os.ReadDir(t.Dir)
	if err != nil {
		return berth.Errorf(berth.Unavailable, "which server leads is not known: %w", err)
	}
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), termPrefix)
		text, sig, _ := strings.Cut(text, ".")
		n, err := strconv.ParseInt(text, 10, 64)
		switch {
		case !ok || err != nil || n == term || !e.Type().IsRegular():
		case n > term && (proof == "" || berth.SameServers(proof, n, sig)):
			return past(term, n)
		default:
			_ = os.Remove(filepath.Join(t.Dir, e.Name())) // another process may have done it, and it does no harm
		}
	}
	return nil
}

// admit is [Terms.Admit] for the host itself. When a term has begun, what is on its way to the
// server before is sent again: that one may have stopped answering, or know nothing of its end.
func (w *worker) admit(term int64, proof string) error {
	begun, err := w.terms.Admit(term, proof)
	if begun {
		for _, h := range w.homes {
			h.Again()
			w.senders.Go(h.Close)
		}
	}
	return err
}

// ForgetTerms has the host of a directory take any term, for one that gets tasks from another
// database from now on.
func ForgetTerms(dir string) error {
	terms, err := filepath.Glob(filepath.Join(dir, termPrefix+"*"))
	for _, path := range terms {
		if e := os.Remove(path); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
