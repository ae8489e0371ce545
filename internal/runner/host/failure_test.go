package host

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"

	"github.com/berthml/berth"
)

// TestFailureOfFullDisk: whoever asked learns that a disk was full, whatever the words.
func TestFailureOfFullDisk(t *testing.T) {
	for cause, want := range map[error]bool{syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.EIO: false} {
		var f failure
		sent := berth.Errorf(berth.Unavailable, "%w", fmt.Errorf("writing the journal: %w", cause))
		if err := json.Unmarshal(encodeFailure(sent), &f); err != nil {
			t.Fatal(err)
		}
		got := f.err()
		if berth.IsDiskFull(got) != want || berth.CodeOf(got) != berth.Unavailable || got.Error() != sent.Error() {
			t.Errorf("%v came as %v", sent, got)
		}
	}
}
