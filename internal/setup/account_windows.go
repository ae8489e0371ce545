package setup

import (
	"context"

	"github.com/berthml/berth"
)

var errWindows = berth.Errorf(berth.Unsupported, "a server for a team runs on Linux")

func (*Team) live() bool                                     { return false }
func (*Team) hasAccounts() bool                              { return false }
func (*Team) accountExists() bool                            { return false }
func (*Team) createAccount(context.Context) error            { return errWindows }
func (*Team) removeAccount(context.Context) error            { return errWindows }
func (*Team) own(string) error                               { return errWindows }
func command(_ context.Context, _ string, _ ...string) error { return errWindows }
