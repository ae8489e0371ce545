package local

import (
	"context"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// HostMain is the hidden command that the driver starts; there is none for Windows.
func HostMain(context.Context, []string) error { return errWindows }

// Open is the driver's [driver.Open]; there is no driver for Windows.
func Open(driver.Config) (driver.Driver, error) { return nil, errWindows }

var errWindows = berth.Errorf(berth.Unsupported, "tasks cannot run on Windows; use a server on Linux or in WSL")

// ForgetTerms has nothing to forget.
func ForgetTerms(string) error { return nil }

// StopIdle does nothing: there is no runner host on Windows.
func StopIdle(context.Context, string) error { return nil }
