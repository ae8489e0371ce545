//go:build !linux

package cli

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// askHidden reads a line of the terminal without showing it.
func askHidden(to io.Writer, question string) ([]byte, error) {
	fmt.Fprint(to, question)
	return term.ReadPassword(int(os.Stdin.Fd()))
}
