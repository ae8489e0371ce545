package api

import "os"

// Reserve makes room for rows at the end of a file.
func Reserve(f *os.File, size int64) (int64, error) { return reserve(f, size) }
