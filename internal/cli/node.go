package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/berthml/berth/internal/driver/provided"
)

// nodeMain is the hidden command that a node of a managed cluster runs.
func nodeMain(args []string) int {
	if err := provided.Main(context.Background(), args); err != nil {
		fmt.Fprintln(os.Stderr, "berth _node:", err)
		return 1
	}
	return 0
}
