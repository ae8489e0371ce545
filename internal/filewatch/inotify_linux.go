package filewatch

import (
	"errors"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Watcher watches files. Its methods may be called concurrently.
type Watcher struct {
	f    *os.File // the inotify descriptor, in the runtime's poller
	fd   int
	done chan struct{}

	mu      sync.Mutex
	watches map[int32]map[*Watch]struct{} // by watch descriptor: the kernel gives one per file
	of      map[*Watch]int32
	closed  bool
}

// New makes a Watcher and the goroutine that reads for it; Close ends both.
func New() (*Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	w := &Watcher{
		f: os.NewFile(uintptr(fd), "inotify"), fd: fd, done: make(chan struct{}),
		watches: map[int32]map[*Watch]struct{}{}, of: map[*Watch]int32{},
	}
	go w.read()
	return w, nil
}

func (w *Watcher) add(path string, x *Watch) (*Watch, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, os.ErrClosed
	}
	wd, err := unix.InotifyAddWatch(w.fd, path, unix.IN_MODIFY)
	if err != nil {
		return nil, &os.PathError{Op: "watch", Path: path, Err: err}
	}
	x.close = w.remove
	set := w.watches[int32(wd)]
	if set == nil {
		set = make(map[*Watch]struct{}, 1)
		w.watches[int32(wd)] = set
	}
	set[x] = struct{}{}
	w.of[x] = int32(wd)
	return x, nil
}

// Close ends every watch and waits for the reader.
func (w *Watcher) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	w.mu.Unlock()
	err := w.f.Close()
	<-w.done
	return err
}

func (w *Watcher) remove(x *Watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wd, ok := w.of[x]
	if !ok {
		return
	}
	delete(w.of, x)
	set := w.watches[wd]
	delete(set, x)
	if len(set) == 0 {
		delete(w.watches, wd)
		if !w.closed {
			// The kernel has dropped the watch already when the file is gone.
			_, _ = unix.InotifyRmWatch(w.fd, uint32(wd))
		}
	}
}

// pause is the least time between two looks at the notices.
const pause = 2 * time.Millisecond

func (w *Watcher) read() {
	defer close(w.done)
	buf := make([]byte, 64<<10)
	var last time.Time
	for {
		// The kernel merges notices that nobody has read: a file that is written without pause is
		// told of this often, not with every write.
		if d := time.Since(last); d < pause {
			time.Sleep(pause - d)
		}
		n, err := w.f.Read(buf)
		last = time.Now()
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		w.dispatch(buf[:n])
	}
}

func (w *Watcher) dispatch(buf []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(buf) >= unix.SizeofInotifyEvent {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&buf[0]))
		buf = buf[unix.SizeofInotifyEvent+int(e.Len):]
		switch {
		case e.Mask&unix.IN_Q_OVERFLOW != 0:
			// Events were lost: everybody looks.
			for x := range w.of {
				x.notify()
			}
		case e.Mask&unix.IN_IGNORED != 0:
			// The file is gone; the number may be given to another file from now on.
			for x := range w.watches[e.Wd] {
				delete(w.of, x)
			}
			delete(w.watches, e.Wd)
		default:
			for x := range w.watches[e.Wd] {
				x.notify()
			}
		}
	}
}
