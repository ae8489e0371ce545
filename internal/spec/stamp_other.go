//go:build !linux

package spec

import "io/fs"

func stampOf(info fs.FileInfo) stamp { return stamp{modified: info.ModTime().UnixNano()} }
