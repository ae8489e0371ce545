//go:build !linux

package slack

// Patient does nothing: only Linux lets a process say how late it may be woken.
func Patient() {}
