package provided

import (
	"context"

	"github.com/berthml/berth"
)

// Main refuses: there are no nodes on Windows.
func Main(context.Context, []string) error {
	return berth.Errorf(berth.Unsupported, "tasks do not run on Windows")
}
