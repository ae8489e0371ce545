package target

import (
	"encoding/json"
	"testing"
)

// TestHasArgs: only options that say something count.
func TestHasArgs(t *testing.T) {
	for raw, want := range map[string]bool{
		"": false, "null": false, `""`: false, " [] ": false, `"--hostname x"`: true, `["--hostname","x"]`: true,
	} {
		if got := hasArgs(json.RawMessage(raw)); got != want {
			t.Errorf("%s: %v", raw, got)
		}
	}
}
