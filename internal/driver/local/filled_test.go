//go:build !windows

package local_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berthml/berth/internal/driver/drivertest"
)

// fullFixture is a host whose disk is full until it is freed.
func fullFixture(t *testing.T) (drivertest.Fixture, func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "bf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	fill, free := drivertest.SmallDisk(t, dir, "4m")
	d := reopen(t, filepath.Join(dir, "host"))
	t.Cleanup(func() { _ = d.Shutdown(t.Context()) })
	if _, err := d.Probe(t.Context()); err != nil { // the host is there before the disk is full
		t.Fatal(err)
	}
	fill()
	return fixtureOf(t, d, filepath.Join(dir, "host")), free
}
