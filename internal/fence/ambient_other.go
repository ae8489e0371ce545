//go:build !linux

package fence

// DropAmbient does nothing: there are no such capabilities.
func DropAmbient() error { return nil }
