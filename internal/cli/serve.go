package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/berthml/berth/internal/app"
	"github.com/berthml/berth/internal/config"
)

func serveCommand(s *session) *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "serve [--home DIR] [--listen HOST:PORT]",
		Short: "Run a server in the foreground",
		Long: "Runs a server in the foreground until Ctrl-C or SIGTERM. Everything it owns is in the home; HOME/berth.yaml configures it.\n" +
			"Running tasks go on when it ends, and it takes them up again when it starts.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			cfg, err := s.config()
			if err != nil {
				return err
			}
			server, err := config.Load(cfg.Home)
			if err != nil {
				return err
			}
			if listen != "" {
				server.Listen = listen
			}
			exe, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			level := slog.LevelInfo
			if s.verbose || s.debug {
				level = slog.LevelDebug
			}
			log := slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: level}))
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			a, err := app.Open(ctx, server, []string{exe, "_host"}, log)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, a.Close()) }()
			return a.Run(ctx)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "address of the HTTPS front door; port 0 takes a free one and keeps it")
	return cmd
}
