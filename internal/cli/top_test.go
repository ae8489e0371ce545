package cli_test

import (
	"testing"

	"github.com/berthml/berth/internal/cli"
)

// TestIdleIsShown: a job that was seen to do nothing uses 0 %, and one that was not looked at is
// not known.
func TestIdleIsShown(t *testing.T) {
	if got := [3]string{cli.Percent(0, true), cli.Percent(0, false), cli.Percent(99.6, true)}; got != [3]string{"0 %", "-", "100 %"} {
		t.Errorf("%q", got)
	}
}
