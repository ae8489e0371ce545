package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/berthml/berth/internal/driver/ssh"
)

// remoteMain is the hidden command that runs on machines reached over SSH.
func remoteMain(args []string) int {
	if err := ssh.Main(context.Background(), args, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
