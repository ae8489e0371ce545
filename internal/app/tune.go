package app

import (
	"os"
	"runtime/debug"

	"github.com/berthml/berth/internal/slack"
)

// Tune is what a process that is nothing but a server calls before it does anything else.
func Tune() {
	slack.Increase()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // the heap is a few megabytes; collecting it is a good part of the cost of a short job
	}
}
