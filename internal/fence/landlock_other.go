//go:build !linux

package fence

import "errors"

func unsupported() string { return "this system has no Landlock" }

// Hide is for Linux.
func Hide(string, ...string) error { return errors.New(unsupported()) }
