//go:build unix

package cli

import (
	"context"

	"github.com/berthml/berth/internal/runner/alone"
)

// taskMain is the hidden command that queueing systems start.
func taskMain(args []string) int { return alone.Main(context.Background(), args) }
