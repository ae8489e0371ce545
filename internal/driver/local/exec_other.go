//go:build !linux && !windows

package local

// Execs says whether commands can be run beside tasks: only Linux tells another process's
// environment.
const Execs = false
