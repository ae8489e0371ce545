//go:build unix

package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/berthml/berth/internal/devbox/agent"
)

// devboxMain is the hidden command that runs on the node of a compute instance.
func devboxMain(args []string) int {
	if err := agent.Main(context.Background(), args); err != nil {
		fmt.Fprintln(os.Stderr, "berth _devbox:", err)
		return exitFailed
	}
	return 0
}
