package stream

import (
	"os"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// A file that is on this machine's disk is handed to the kernel, which then reads it without asking
// (FUSE passthrough, Linux 6.9): at the speed of the disk, from the page cache that others share,
// and also when this process has ended. The kernel wants one file for all who have a node open at
// the same time, and none of them in another way.

// backings are the files behind nodes that are open.
type backings struct {
	mu     sync.Mutex
	server *fuse.Server // nil where the kernel cannot
	byNode map[uint64]*backing
}

// backing is how a node is open now.
type backing struct {
	id    int32 // the kernel's number of the file; 0 where it asks for what is read
	users int
}

// begin has files handed to the kernel from now on, if it can.
func (b *backings) begin(s *fuse.Server) {
	if s.KernelSettings().Flags64()&fuse.CAP_PASSTHROUGH != 0 {
		b.mu.Lock()
		b.server = s
		b.mu.Unlock()
	}
}

// open notes that a node is opened, and returns the kernel's number of its file; 0 where there is
// none.
func (b *backings) open(node uint64, f *os.File) int32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x := b.byNode[node]; x != nil {
		x.users++
		return x.id
	}
	x := &backing{users: 1}
	if b.server != nil && f != nil {
		if id, errno := b.server.RegisterBackingFd(&fuse.BackingMap{Fd: int32(f.Fd())}); errno == 0 {
			x.id = id
		}
	}
	b.byNode[node] = x
	return x.id
}

// close is called for each open.
func (b *backings) close(node uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.byNode[node]
	if x == nil {
		return
	}
	if x.users--; x.users > 0 {
		return
	}
	delete(b.byNode, node)
	if x.id != 0 {
		_ = b.server.UnregisterBackingFd(x.id) // it ends with the mount at the latest
	}
}
