package fake

import (
	"log/slog"

	"github.com/berthml/berth/internal/driver"
)

// Registry finds the given drivers by their type; computes of a type share its driver.
func Registry(drivers map[string]driver.Driver, log *slog.Logger) *driver.Registry {
	return driver.NewRegistry(func(name string) (driver.Type, bool) {
		d, ok := drivers[name]
		shared := name
		if name == "computeinstance" { // its nodes are made by the driver of clusters
			shared = "amlcompute"
		}
		return driver.Type{Shared: shared, Open: func(driver.Config) (driver.Driver, error) { return d, nil }}, ok
	}, func(string) driver.Config { return driver.Config{} }, log)
}

// Machine is one node that runs so many tasks at once.
func Machine(slots int) []driver.Node {
	return []driver.Node{{Name: "fake-0", CPUs: 4, Memory: 16 << 30, OS: "linux", Arch: "amd64", Slots: slots}}
}
