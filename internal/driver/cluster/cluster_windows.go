package cluster

import (
	"context"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// Open is the driver's [driver.Open]; there is no driver for Windows.
func Open(driver.Config) (driver.Driver, error) {
	return nil, berth.Errorf(berth.Unsupported, "nodes do not run on Windows: use a server on Linux or in WSL")
}

// StopIdle does nothing: there are no nodes on Windows.
func StopIdle(context.Context, string) (int, error) { return 0, nil }
