//go:build !linux

package idle

import "runtime/debug"

// Release returns free memory of the heap.
func Release() { debug.FreeOSMemory() }

func unmap() {}
