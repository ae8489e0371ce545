package migrate

import (
	"io/fs"

	"github.com/berthml/berth"
)

// special returns why something in a folder is not imported: it is neither a file nor a folder.
// Links are not followed: they may lead anywhere, and to the same thing twice.
func special(name string, mode fs.FileMode) error {
	var what string
	switch {
	case mode.IsRegular(), mode.IsDir():
		return nil
	case mode&fs.ModeSymlink != 0:
		return berth.Errorf(berth.Invalid, "%s is a symbolic link, which is not followed; put a copy of what it points to in its place", name)
	case mode&fs.ModeNamedPipe != 0:
		what = "a pipe"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	default:
		what = "special"
	}
	return berth.Errorf(berth.Invalid, "%s is %s; only files and folders are imported", name, what)
}
