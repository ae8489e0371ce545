//go:build !unix

package api

import (
	"os"

	"github.com/berthml/berth"
)

// lockFile refuses: servers run on Linux and macOS.
func lockFile(*os.File) (unlock func(), err error) {
	return nil, berth.Errorf(berth.Unsupported, "this system runs the client only; point BERTH_URL at a server")
}
