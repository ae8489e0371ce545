package backup

import (
	"io/fs"
	"os"
)

const openFlags = 0

// lockFile opens a file; there are no servers on Windows to keep apart.
func lockFile(path, _ string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}

func waitLock(path string) (*os.File, error) { return lockFile(path, "") }

// abandoned cannot be known without locks.
func abandoned(string) bool { return false }

// private is what the folders of a user are.
func private(fs.FileInfo) bool { return true }
