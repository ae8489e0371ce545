//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/berthml/berth/internal/app"
	"github.com/berthml/berth/internal/config"
	"github.com/berthml/berth/internal/driver/local"
	"github.com/berthml/berth/internal/fence"
	launcher "github.com/berthml/berth/internal/runner/group"
)

// tune comes before everything else in a process that is going to serve.
func tune() { app.Tune() }

// serve runs a server until ctx ends.
func serve(ctx context.Context, cfg config.Config, log *slog.Logger) (err error) {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if err := fence.DropAmbient(); err != nil { // before anything is started
		return fmt.Errorf("give up ambient capabilities: %w", err)
	}
	a, err := app.Open(ctx, cfg, []string{exe, "_host"}, log)
	if errors.Is(err, app.ErrStopped) {
		log.Info(err.Error())
		return nil // as when it has served
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	return a.Run(ctx)
}

// hostMain is the hidden command that the local driver starts.
func hostMain(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := local.HostMain(ctx, args); err != nil {
		fmt.Fprintln(os.Stderr, "berth _host:", err)
		return 1
	}
	return 0
}

// groupMain is the hidden command that starts the processes of a distributed job.
func groupMain(args []string) int { return launcher.Main(args) }
