package cli

import (
	"fmt"
	"os"
)

// taskMain is the hidden command that queueing systems start; there is none for Windows.
func taskMain([]string) int {
	fmt.Fprintln(os.Stderr, "tasks do not run on Windows")
	return 1
}
