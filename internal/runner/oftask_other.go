//go:build !linux

package runner

import "net/netip"

// OfTask says whether a process belongs to a task of a host below home; here nobody knows.
func OfTask(int, string) bool { return false }

// TaskConnected says whether a process of a task has the other end of a connection; here nobody
// knows.
func TaskConnected(_, _ netip.AddrPort, _ string) bool { return false }

// NodeConnected says whether a connection comes from the tasks of a host; here nobody knows, and
// all do.
func NodeConnected(_, _ netip.AddrPort, _, _ string) bool { return true }

// OfHost says that a process may be one of a host of tasks: only Linux tells.
func OfHost(int) bool { return true }
