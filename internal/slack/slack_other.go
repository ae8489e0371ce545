//go:build !linux

package slack

// Increase does nothing: only Linux has timer slack.
func Increase() {}
