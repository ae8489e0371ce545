// Package all lists the drivers this build has.
package all

import (
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/cluster"
	"github.com/berthml/berth/internal/driver/fake"
	"github.com/berthml/berth/internal/driver/local"
)

// Drivers maps the type of a compute, in lower case, to the driver that runs tasks there.
func Drivers() map[string]driver.Open {
	return map[string]driver.Open{
		"local":                             local.Open,
		strings.ToLower(berth.TypeCluster):  cluster.Open,
		strings.ToLower(berth.TypeInstance): cluster.Open, // a node of its user's own
		"fake":                              fake.Open,
	}
}

// Lookup finds the driver for a compute type in any case.
func Lookup(computeType string) (driver.Open, bool) {
	o, ok := Drivers()[strings.ToLower(computeType)]
	return o, ok
}
