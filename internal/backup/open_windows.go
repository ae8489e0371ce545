package backup

import "os"

const openFlags = 0

// lockFile opens a file; there are no servers on Windows to keep apart.
func lockFile(path, _ string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}
