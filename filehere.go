package berth

import "time"

// FileHereHeader has a FileHere as JSON. It is a header because a job chooses the address and the
// content that its runner sends for it, and no header.
const FileHereHeader = "X-Berth-File"

// FileHere names a file of the machine that client and server share, so that its content need not
// be sent. A file at that path with another size or time is not the one that is meant: the server
// may have other file systems mounted.
type FileHere struct {
	Path     string    `json:"path"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}
