//go:build !linux

package host

import (
	"context"
	"runtime"

	"github.com/berthml/berth"
)

// Main is the program of a host; there is none for this system.
func Main(context.Context, []string) error {
	return berth.Errorf(berth.Unsupported, "a runner host does not run on %s", runtime.GOOS)
}
