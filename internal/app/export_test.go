package app

import "github.com/berthml/berth/internal/driver"

// AddDriver gives a server that does not run yet another driver.
func (a *App) AddDriver(name string, t driver.Type) {
	others := a.drivers
	a.drivers = func(n string) (driver.Type, bool) {
		if n == name {
			return t, true
		}
		return others(n)
	}
}
