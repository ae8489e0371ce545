package group

import "os"

// Shared says whether the shared memory of a task's ranks is still there.
func Shared(dir string) bool {
	_, err := os.Stat(shared(dir))
	return err == nil
}
