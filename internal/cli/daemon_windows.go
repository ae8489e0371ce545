package cli

import (
	"context"
	"net"
	"os/exec"

	"github.com/berthml/berth"
)

// Servers do not run on Windows: a client there points BERTH_URL at one elsewhere.
func errNoServer() error {
	return berth.Errorf(berth.Unsupported, "a server cannot run on Windows; set BERTH_URL and BERTH_TOKEN to use one elsewhere")
}

func detach(*exec.Cmd) {}

func lockFile(context.Context, string) (func(), error) { return nil, errNoServer() }

func terminate(int) error { return errNoServer() }

func peerPID(net.Conn) (int, error) { return 0, errNoServer() }
