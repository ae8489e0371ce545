//go:build !unix

package store

// hold takes nothing: servers run on Linux and macOS.
func hold(string, string) (release func(), err error) { return func() {}, nil }
