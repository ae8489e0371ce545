package cli

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/berthml/berth/internal/config"
)

func serveCommand(s *session) *cobra.Command {
	var listen, name string
	cmd := &cobra.Command{
		Use:   "serve [--home DIR] [--listen HOST:PORT] [--name NAME]",
		Short: "Run a server in the foreground",
		Long: "Runs a server in the foreground until Ctrl-C or SIGTERM. Everything it owns is in the home; HOME/berth.yaml configures it.\n" +
			"Tasks keep running when it stops, and it takes them over again when it starts.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.config()
			if err != nil {
				return err
			}
			server, err := config.Load(cfg.Home)
			if err != nil {
				return err
			}
			server.Name = name
			if listen != "" {
				server.Listen = listen
			}
			level := slog.LevelInfo
			if s.verbose || s.debug {
				level = slog.LevelDebug
			}
			log := slog.New(s.logHandler(level))
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return serve(ctx, server, log)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of a further server of the home; it needs a PostgreSQL database")
	cmd.Flags().StringVar(&listen, "listen", "", "HTTPS address to listen on; port 0 chooses a free port and keeps it")
	return cmd
}
