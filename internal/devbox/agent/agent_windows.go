package agent

import (
	"context"

	"github.com/berthml/berth"
)

// Main says that there are no instances on Windows.
func Main(context.Context, []string) error {
	return berth.Errorf(berth.Unsupported, "compute instances do not run on Windows")
}

// statusWait is how long a question for the status waits for news.
const statusWait = 25e9
