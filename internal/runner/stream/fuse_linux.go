package stream

import (
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// device is where the kernel is asked for file systems that a process serves.
const device = "/dev/fuse"

// Trouble says why there can be no such folders here; empty where there can.
func Trouble() string {
	f, err := os.OpenFile(device, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Sprintf("%s cannot be opened: %v", device, err)
	}
	f.Close()
	return ""
}

// Mount mounts the tree at a folder, in the mount namespace of the calling thread. It is there
// until it is unmounted, or that namespace ends.
func (t *Tree) Mount(dir string) error {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s cannot be opened: %w", device, err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other,default_permissions", fd, os.Geteuid(), os.Getegid())
	if err := unix.Mount("berth", dir, "fuse.berth", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		unix.Close(fd)
		return fmt.Errorf("a streaming mount is refused: %w", err)
	}
	all := &files{
		RawFileSystem: fuse.NewDefaultRawFileSystem(), t: t, began: time.Now(),
		open: map[uint64]*reader{}, behind: backings{byNode: map[uint64]*backing{}},
	}
	s, err := fuse.NewServer(all,
		fmt.Sprintf("/dev/fd/%d", fd), &fuse.MountOptions{
			MaxBackground: 64, MaxReadAhead: block, MaxWrite: block, DisableXAttrs: true, DisableSplice: true, ExplicitDataCacheControl: true,
			Logger: log.New(io.Discard, "", 0),
		})
	if err != nil {
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		return fmt.Errorf("a streaming mount does not begin: %w", err)
	}
	all.behind.begin(s)
	go s.Serve()
	readAhead(dir)
	return nil
}

// readAhead has the kernel ask for more at once than it does by itself. It is for speed alone, so
// that it does not matter where that cannot be set.
func readAhead(dir string) {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return
	}
	at := fmt.Sprintf("/sys/class/bdi/%d:%d/read_ahead_kb", unix.Major(st.Dev), unix.Minor(st.Dev))
	_ = os.WriteFile(at, []byte("1024"), 0)
}

// files is the tree as the kernel asks for it. The id of a node is its number and one.
type files struct {
	fuse.RawFileSystem
	t     *Tree
	began time.Time

	mu     sync.Mutex
	open   map[uint64]*reader
	next   atomic.Uint64
	behind backings
}

// OnUnmount is called when nobody can ask any more.
func (f *files) OnUnmount() { f.t.Close() }

func (f *files) String() string { return "berth" }

func (f *files) node(id uint64) *node {
	if id == 0 || id > uint64(len(f.t.nodes)) {
		return nil
	}
	return &f.t.nodes[id-1]
}

// forever is how long the kernel may believe what it was told: nothing changes.
const forever = 24 * time.Hour

func (f *files) attr(id uint64, n *node, out *fuse.Attr) {
	out.Ino, out.Nlink, out.Blksize = id, 1, block
	out.Uid, out.Gid = uint32(os.Geteuid()), uint32(os.Getegid())
	out.SetTimes(&f.began, &f.began, &f.began)
	if n.file < 0 {
		out.Mode, out.Nlink = unix.S_IFDIR|0o555, 2
		return
	}
	out.Mode, out.Size, out.Blocks = unix.S_IFREG|0o444, uint64(n.size), (uint64(n.size)+511)/512
}

func (f *files) entry(id uint64, n *node, out *fuse.EntryOut) {
	out.NodeId = id
	out.SetEntryTimeout(forever)
	out.SetAttrTimeout(forever)
	f.attr(id, n, &out.Attr)
}

func (f *files) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	n := f.node(h.NodeId)
	if n == nil {
		return fuse.ENOENT
	}
	i, ok := n.byName[name]
	if !ok {
		return fuse.ENOENT
	}
	f.entry(uint64(i)+1, &f.t.nodes[i], out)
	return fuse.OK
}

func (f *files) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	n := f.node(in.NodeId)
	if n == nil {
		return fuse.ENOENT
	}
	out.SetTimeout(forever)
	f.attr(in.NodeId, n, &out.Attr)
	return fuse.OK
}

func (f *files) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.ENOSYS }

func (f *files) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	out.Bsize, out.NameLen = block, 255
	return fuse.OK
}

func (f *files) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	n := f.node(in.NodeId)
	switch {
	case n == nil:
		return fuse.ENOENT
	case n.file < 0:
		return fuse.Status(unix.EISDIR)
	case in.Flags&unix.O_ACCMODE != unix.O_RDONLY:
		return fuse.EROFS
	}
	r := f.t.open(n)
	out.Fh, out.OpenFlags = f.next.Add(1), fuse.FOPEN_KEEP_CACHE
	if id := f.behind.open(in.NodeId, r.file); id != 0 {
		out.OpenFlags, out.BackingID = fuse.FOPEN_PASSTHROUGH, id
	}
	f.mu.Lock()
	f.open[out.Fh] = r
	f.mu.Unlock()
	return fuse.OK
}

func (f *files) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	f.mu.Lock()
	r := f.open[in.Fh]
	f.mu.Unlock()
	if r == nil {
		return nil, fuse.EBADF
	}
	if r.file != nil {
		return fuse.ReadResultFd(r.file.Fd(), int64(in.Offset), len(buf)), fuse.OK
	}
	n, err := r.readAt(cancel, buf, int64(in.Offset))
	select {
	case <-cancel:
		return nil, fuse.EINTR
	default:
	}
	if err != nil {
		return nil, fuse.EIO
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

func (f *files) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	f.mu.Lock()
	r := f.open[in.Fh]
	delete(f.open, in.Fh)
	f.mu.Unlock()
	if r != nil {
		f.behind.close(in.NodeId)
		r.close()
	}
}

func (f *files) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if n := f.node(in.NodeId); n == nil || n.file >= 0 {
		return fuse.ENOTDIR
	}
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_CACHE_DIR
	return fuse.OK
}

func (f *files) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return f.readDir(in, func(e fuse.DirEntry, _ uint64, _ *node) bool { return out.AddDirEntry(e) })
}

func (f *files) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return f.readDir(in, func(e fuse.DirEntry, id uint64, n *node) bool {
		entry := out.AddDirLookupEntry(e)
		if entry != nil {
			f.entry(id, n, entry)
		}
		return entry != nil
	})
}

func (f *files) readDir(in *fuse.ReadIn, add func(fuse.DirEntry, uint64, *node) bool) fuse.Status {
	n := f.node(in.NodeId)
	if n == nil {
		return fuse.ENOENT
	}
	for i := in.Offset; i < uint64(len(n.children)); i++ {
		id := uint64(n.children[i]) + 1
		child := f.node(id)
		mode := uint32(unix.S_IFREG)
		if child.file < 0 {
			mode = unix.S_IFDIR
		}
		if !add(fuse.DirEntry{Name: child.name, Ino: id, Mode: mode, Off: i + 1}, id, child) {
			break
		}
	}
	return fuse.OK
}
