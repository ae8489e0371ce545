//go:build !linux

package runner

import "os"

// empty says whether a directory holds nothing or is not there.
func empty(dir string) bool {
	list, err := os.ReadDir(dir)
	return len(list) == 0 && (err == nil || os.IsNotExist(err))
}
