package cli

import (
	"context"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver/dialout"
)

func runAgent(context.Context, *dialout.Agent, agentOptions) error {
	return berth.Errorf(berth.Unsupported, "tasks do not run on Windows: run the agent in WSL")
}
