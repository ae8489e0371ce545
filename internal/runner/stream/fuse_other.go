//go:build !linux

package stream

import "errors"

// Trouble says why there can be no such folders here.
func Trouble() string { return "this system cannot stream inputs" }

// Mount is for Linux.
func (t *Tree) Mount(string) error { return errors.New(Trouble()) }
