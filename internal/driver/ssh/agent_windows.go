package ssh

import (
	"context"
	"io"

	"github.com/berthml/berth"
)

// Main is the hidden command that runs on the machine; there is none for Windows.
func Main(context.Context, []string, io.Reader, io.Writer) error {
	return berth.Errorf(berth.Unsupported, "tasks cannot run on Windows")
}
