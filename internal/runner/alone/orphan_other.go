//go:build unix && !linux

package alone

// becomeSubreaper makes this process the parent of what its tasks leave behind, where that is
// possible.
func becomeSubreaper() {}

// childless says that no process is left of the tasks that have ended, where that is known.
func childless() bool { return false }
