package cli

import (
	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

func upCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "Start the local server if it is not running",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.config()
			if err != nil {
				return err
			}
			if cfg.URL != "" {
				return berth.Errorf(berth.Conflict, "%s %s; name a home with --home, or run `berth login local`, to use a local server", s.whence(), cfg.URL)
			}
			word := "started"
			if alive(cmd.Context(), cfg.Home) {
				word = "runs already"
			} else if err := s.start(cmd.Context(), cfg.Home, false); err != nil {
				return err
			}
			info, err := client.ReadServer(cfg.Home)
			if err != nil {
				return err
			}
			s.say("the local server %s: %s, pid %d, home %s", word, info.URL, info.PID, cfg.Home)
			s.warnOfShell(info.URL)
			return nil
		},
	}
}
