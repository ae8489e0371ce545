package app

// ownDescriptors is how many descriptors a server needs for itself and for requests that are
// answered at once.
const ownDescriptors = 128

// followers is how many logs and streams may be followed where a process may have n descriptors:
// each takes a connection and a file.
func followers(n int) int { return max(8, (n-ownDescriptors)/3) }

// visitors is how many connections the port may have where a process may have n descriptors, so
// that some are left for the local socket.
func visitors(n int) int { return n / 2 }
