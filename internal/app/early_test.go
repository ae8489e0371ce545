package app_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"

	"github.com/berthml/berth/internal/app"
	"github.com/berthml/berth/internal/config"
)

// TestStopDuringStart: a server that is told to end while it starts says so, in words.
func TestStopDuringStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	home := shortHome(t)
	_, err := app.Open(ctx, config.Default(home), []string{os.Args[0], "_host"}, slog.New(slog.DiscardHandler))
	if !errors.Is(err, app.ErrStopped) || err.Error() != "the server was asked to stop before it had started" {
		t.Errorf("%v", err)
	}
	start(t, home).stop() // nothing is left locked
}
