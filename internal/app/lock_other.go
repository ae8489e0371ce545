//go:build !unix

package app

import (
	"io/fs"

	"github.com/berthml/berth"
)

func mine(fs.FileInfo) bool { return false }

func held(string) bool { return false }

func descriptors() int { return 1 << 20 }

// lock refuses: servers run on Linux and macOS, this build is the client.
func lock(string) (func() error, error) {
	return nil, berth.Errorf(berth.Unsupported, "this system runs the client only; point BERTH_URL at a server")
}
