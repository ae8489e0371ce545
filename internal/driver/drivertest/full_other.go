//go:build !linux

package drivertest

import "testing"

// SmallDisk skips the test: no small disk can be made here.
func SmallDisk(t *testing.T, _, _ string) (fill, free func()) {
	t.Helper()
	t.Skip("no small disk can be made here")
	return nil, nil
}
