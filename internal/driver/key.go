package driver

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// Key is a name for what parts name together, good wherever names are limited most: 34 characters,
// lower-case letters and digits after "b-". A task's id has up to about 170 characters and dots,
// and engines take 63 or 64 without: there the key of server, compute and task marks what a driver
// creates, and the id itself goes where Observe can read it back.
func Key(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p)) // a hash does not fail
		h.Write([]byte{0})
	}
	return "b-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)[:20]))
}
