//go:build !linux && !windows

package local

// execs says whether commands can be run beside tasks: only Linux tells another process's environment.
const execs = false
