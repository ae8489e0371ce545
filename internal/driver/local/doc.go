// Package local is the driver for the machine the server runs on. It hands tasks to a runner host
// (package host), a process of its own that outlives the server.
package local
