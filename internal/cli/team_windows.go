package cli

import (
	"github.com/spf13/cobra"

	"github.com/berthml/berth"
)

// onServer is a command that is about a server of this machine; there are none on Windows.
func onServer(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ArbitraryArgs, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return berth.Errorf(berth.Unsupported, "berth %s works on the machine of a server, which runs on Linux or macOS", cmd.Name())
		},
	}
}

func backupCommand(*session) *cobra.Command {
	return onServer("backup PLACE", "Back up the server's home to a folder or a bucket")
}

func restoreCommand(*session) *cobra.Command {
	return onServer("restore PLACE [ID]", "Restore a backup into an empty home")
}

func setupCommand(*session) *cobra.Command {
	return onServer("setup", "Install a server for a team on this machine, or remove it")
}

func trustCommand(*session) *cobra.Command {
	return onServer("trust", "Have this machine's browsers and programs trust the server's certificate authority")
}
