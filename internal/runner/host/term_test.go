//go:build !windows

package host

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/berthml/berth"
)

// TestPastTermIsRefused: once a later term was seen, in this process or an earlier one, the ones
// before it are refused.
func TestPastTermIsRefused(t *testing.T) {
	dir := t.TempDir()
	terms := &Terms{Dir: dir}
	for _, term := range []int64{0, 5, 5, 7, 0, 7} {
		if _, err := terms.Admit(term, ""); err != nil {
			t.Errorf("term %d: %v", term, err)
		}
	}
	for _, terms := range []*Terms{terms, {Dir: dir}} {
		if _, err := terms.Admit(5, ""); berth.CodeOf(err) != berth.Unavailable {
			t.Errorf("term 5 after 7: %v", err)
		}
		if _, err := terms.Admit(7, ""); err != nil {
			t.Error(err)
		}
	}
}

// TestTermsOfSeveralProcesses: of terms that processes note at the same time the latest is kept.
func TestTermsOfSeveralProcesses(t *testing.T) {
	const last = 8
	for range 200 {
		dir := t.TempDir()
		var group sync.WaitGroup
		for term := int64(1); term <= last; term++ {
			group.Go(func() {
				_, err := (&Terms{Dir: dir}).Admit(term, "")
				if err != nil && (term == last || berth.CodeOf(err) != berth.Unavailable) {
					t.Errorf("term %d: %v", term, err)
				}
			})
		}
		group.Wait()
		if _, err := (&Terms{Dir: dir}).Admit(last-1, ""); berth.CodeOf(err) != berth.Unavailable {
			t.Fatalf("term %d after %d: %v", last-1, last, err)
		}
	}
}

// TestTermThatNoServerGaveOut: tasks can write where terms are noted, and make nobody believe that
// another server leads.
func TestTermThatNoServerGaveOut(t *testing.T) {
	dir := t.TempDir()
	key, other := ed25519.NewKeyFromSeed(make([]byte, 32)), ed25519.NewKeyFromSeed([]byte("the key that a task makes itself"))
	terms := &Terms{Dir: dir}
	admit := func(terms *Terms, term int64, want berth.Code) {
		t.Helper()
		if _, err := terms.Admit(term, berth.ProveTerm(key, term)); berth.CodeOf(err) != want {
			t.Errorf("term %d: %v", term, err)
		}
	}
	admit(terms, 5, "")
	real5, err := filepath.Glob(filepath.Join(dir, "term.5.*"))
	if err != nil || len(real5) != 1 {
		t.Fatalf("%v, %v", real5, err)
	}
	for _, name := range []string{"term.9", "term.9.", "term.9.00", "term.9." + berth.TermSignature(berth.ProveTerm(other, 9)), "term.9" + filepath.Ext(real5[0])} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	admit(&Terms{Dir: dir}, 5, "")
	admit(terms, 6, "")
	admit(&Terms{Dir: dir}, 5, berth.Unavailable)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	admit(terms, 5, berth.Unavailable) // it was seen here, whatever was removed
	if _, err := terms.Admit(7, berth.ProveTerm(key, 6)); berth.CodeOf(err) != berth.Denied {
		t.Errorf("term 7 with the proof of 6: %v", err)
	}
}

// TestTermWithoutProof: a task that reaches the host's socket keeps no server out with a term that
// it made up, and a folder that it made is left alone.
func TestTermWithoutProof(t *testing.T) {
	dir := t.TempDir()
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	terms := &Terms{Dir: dir}
	_, _ = terms.Admit(1<<62, "")
	if err := os.MkdirAll(filepath.Join(dir, "term.1", "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*Terms{terms, {Dir: dir}} {
		if _, err := x.Admit(5, berth.ProveTerm(key, 5)); err != nil {
			t.Errorf("term 5: %v", err)
		}
		if _, err := x.Admit(1<<62, ""); berth.CodeOf(err) != berth.Unavailable {
			t.Errorf("a term without a proof after one with it: %v", err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "term.1", "deep")); err != nil {
		t.Error(err)
	}
}
