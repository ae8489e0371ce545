package cli

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// askHidden reads a line of the terminal without showing it. What is typed as soon as the question
// is there is not shown either.
func askHidden(to io.Writer, question string) ([]byte, error) {
	in := int(os.Stdin.Fd())
	was, err := unix.IoctlGetTermios(in, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	silent := *was
	silent.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(in, unix.TCSETS, &silent); err != nil {
		return nil, err
	}
	defer unix.IoctlSetTermios(in, unix.TCSETS, was) //nolint:errcheck // the terminal went away
	fmt.Fprint(to, question)
	return term.ReadPassword(in)
}
