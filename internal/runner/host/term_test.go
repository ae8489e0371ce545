//go:build !windows

package host

import (
	"testing"

	"github.com/berthml/berth"
)

// TestPastTermIsRefused: once a later term was seen, in this process or an earlier one, the ones before it are refused.
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
