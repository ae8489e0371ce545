package track

import "time"

// What a signed address is good for.
const (
	signRead   = "r"
	signWrite  = "w"
	signBlocks = "b" // of an upload, which the server completes
)

// An Address is one at which a blob is read or written without a token.
type Address struct {
	Container, Name string
	// Perm is "r" to read the blob, "w" to write it, "b" to write blocks of it.
	Perm  string
	Who   Caller
	Until time.Time
}

// sign returns the address of a file for the caller, who may do with it what perm says.
func (c *call) sign(f file, perm string, life time.Duration) string {
	return c.s.Sign(Address{Container: f.container, Name: f.name, Perm: perm, Who: c.who, Until: time.Now().Add(life)})
}

// isFolder reports whether a file is the folder of a run or model, or above it.
func (f file) isFolder() bool {
	uri := ""
	switch {
	case f.run != nil:
		uri = f.run.URI
	case f.model != nil:
		uri = f.model.URI
	}
	root, ours := proxied(uri)
	return f.path == "" || ours && (root == f.path || isBelow(uri, f.path))
}
