//go:build !linux

package runner

import (
	"syscall"

	"github.com/berthml/berth"
)

// Groups are control groups, which Linux alone has.
type Groups struct{}

// NodeGroups has none.
func NodeGroups(string) Groups { return Groups{} }

var errNoGroups = berth.Errorf(berth.Unsupported, "this system has no control groups to limit a node by")

// Check says that there are none.
func (Groups) Check() error { return errNoGroups }

// Make makes nothing.
func (g Groups) Make(float64, int64) (Groups, error) { return g, errNoGroups }

// Detach makes a command line that starts a program and leaves it to whoever takes orphans.
func (Groups) Detach(program []string) (argv []string, attr *syscall.SysProcAttr, done func()) {
	argv = append([]string{"/bin/sh", "-c", `"$@" & exit 0`, "berth"}, program...)
	return argv, &syscall.SysProcAttr{Setsid: true}, func() {}
}

// Kill has nothing to end.
func (Groups) Kill() bool { return false }

// Remove has nothing to remove.
func (Groups) Remove() error { return nil }

// Belonging finds nothing: only Linux tells what another process is.
func Belonging(...string) map[string][]int { return nil }

// Origin is a moment, to tell processes that began later.
type Origin struct{}

// NewOrigin is when this process began.
func NewOrigin() Origin { return Origin{} }

// Belonging is [Belonging] for a directory that is no host's, and whose processes have all begun
// since.
func (Origin) Belonging(string) []int { return nil }
