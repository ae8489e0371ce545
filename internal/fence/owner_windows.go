package fence

import "io/fs"

// writable is not asked here: there is no fence.
func writable(fs.FileInfo) bool { return true }
