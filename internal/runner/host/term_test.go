//go:build !windows

package host

import (
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
		if _, err := terms.Admit(term); err != nil {
			t.Errorf("term %d: %v", term, err)
		}
	}
	for _, terms := range []*Terms{terms, {Dir: dir}} {
		if _, err := terms.Admit(5); berth.CodeOf(err) != berth.Unavailable {
			t.Errorf("term 5 after 7: %v", err)
		}
		if _, err := terms.Admit(7); err != nil {
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
				_, err := (&Terms{Dir: dir}).Admit(term)
				if err != nil && (term == last || berth.CodeOf(err) != berth.Unavailable) {
					t.Errorf("term %d: %v", term, err)
				}
			})
		}
		group.Wait()
		if _, err := (&Terms{Dir: dir}).Admit(last - 1); berth.CodeOf(err) != berth.Unavailable {
			t.Fatalf("term %d after %d: %v", last-1, last, err)
		}
	}
}
