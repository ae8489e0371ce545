package cli

import (
	"context"
	"log/slog"
	"net"
	"os/exec"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/config"
)

// Servers do not run on Windows: a client there points BERTH_URL at one elsewhere.
func errNoServer() error {
	return berth.Errorf(berth.Unsupported, "a server cannot run on Windows; set BERTH_URL and BERTH_TOKEN to use one elsewhere")
}

func detach(*exec.Cmd) {}

func lockFile(context.Context, string) (func(), error) { return nil, errNoServer() }

func terminate(int) error { return errNoServer() }

func peerPID(net.Conn) (int, error) { return 0, errNoServer() }

func serve(context.Context, config.Config, *slog.Logger) error { return errNoServer() }

func hostMain([]string) int { return exitFailed }

func tune() {}

func groupMain([]string) int { return exitFailed }
