//go:build !linux

package runner

import "os"

// ownProgram is this program.
func ownProgram() (string, error) { return os.Executable() }
