package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A task's mounts are in a namespace of its own, which ends with its last process: nobody else sees
// them, and nothing of them is left when the runner is killed. The namespace is made on a thread of
// this process, which then starts the command, so that it costs no process.

// mountsRefused is why this system lets this process mount nothing, once that is known.
var mountsRefused atomic.Pointer[string]

// mountless says why folders cannot be mounted for a command; empty when they may be.
func mountless(boxed bool) string {
	switch why := mountsRefused.Load(); {
	case boxed:
		return "the command runs in a container"
	case os.Geteuid() != 0:
		return "mounting takes root"
	case why != nil:
		return *why
	}
	return ""
}

// room is a thread in a mount namespace of its own.
type room struct {
	calls chan func()
	done  chan struct{}
}

// mountAll makes a room in which the trees are mounted: those that are written to as the lower
// layer of an overlay whose upper one is the place itself, so that from outside the place shows
// what the command has changed; the others as they are, read-only. more mounts what else there is.
func mountAll(dir string, trees []*tree, more func() error) (*room, error) {
	r := &room{calls: make(chan func()), done: make(chan struct{})}
	ready := make(chan error, 1)
	go r.serve(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("a mount namespace cannot be created: %w", err)
		}
		// What is mounted elsewhere shows here, and not the other way round.
		if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("a mount namespace cannot be created: %w", err)
		}
		for _, x := range trees {
			if err := x.mount(dir); err != nil {
				return err
			}
		}
		return more()
	}, ready)
	err := <-ready
	if err == nil {
		return r, nil
	}
	for _, lasting := range []error{unix.EPERM, unix.EACCES, unix.EINVAL, unix.ENODEV, unix.ENOSYS} {
		if errors.Is(err, lasting) { // it would be no different for the next task
			why := err.Error()
			mountsRefused.Store(&why)
		}
	}
	return nil, err
}

// serve is the thread. It ends with the goroutine, since that never lets go of it.
func (r *room) serve(enter func() error, ready chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The first thread cannot end, and is what others see of the process: it must stay where it
		// is.
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.serve(enter, ready)
		}()
		<-done
		runtime.UnlockOSThread()
		return
	}
	err := enter()
	ready <- err
	if err != nil {
		return
	}
	for f := range r.calls {
		f()
	}
	close(r.done)
}

// do calls f on the thread.
func (r *room) do(f func()) {
	over := make(chan struct{})
	r.calls <- func() {
		defer close(over)
		f()
	}
	<-over
}

// close ends the thread. The namespace lives on with the command. Further calls do nothing.
func (r *room) close() {
	if r == nil || r.calls == nil {
		return
	}
	close(r.calls)
	<-r.done
	r.calls = nil
}

// Beside calls start, which starts a process, so that the process sees the mounts that process pid
// sees.
func Beside(pid int, start func() error) error {
	space := fmt.Sprintf("/proc/%d/ns/mnt", pid)
	theirs, err1 := os.Readlink(space)
	ours, err2 := os.Readlink("/proc/self/ns/mnt")
	if err1 != nil || err2 != nil || theirs == ours {
		return start()
	}
	f, err := os.Open(space)
	if err != nil {
		return fmt.Errorf("the mounts of the task cannot be entered: %w", err)
	}
	defer f.Close()
	r := &room{calls: make(chan func()), done: make(chan struct{})}
	ready := make(chan error, 1)
	go r.serve(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil { // a thread with a root directory of its own may change its mounts
			return err
		}
		return unix.Setns(int(f.Fd()), unix.CLONE_NEWNS)
	}, ready)
	if err := <-ready; err != nil {
		return fmt.Errorf("the mounts of the task cannot be entered: %w", err)
	}
	defer r.close()
	r.do(func() { err = start() })
	return err
}

// mount puts one tree in its place.
func (x *tree) mount(dir string) error {
	if err := os.MkdirAll(x.to, 0o700); err != nil {
		return err
	}
	if x.write {
		return x.overlay(dir)
	}
	if err := unix.Mount(x.use.Dir, x.to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("a bind mount is refused: %w", err)
	}
	if err := unix.Mount("", x.to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("a bind mount cannot be read-only: %w", err)
	}
	x.how = "the node's cache itself, mounted read-only"
	return nil
}

func (x *tree) overlay(dir string) error {
	if err := overlay(x.use.Dir, x.to, filepath.Join(dir, "overlay"), x.to); err != nil {
		return err
	}
	x.how = "an overlay on the node's cache"
	return nil
}

// overlayEnv puts an overlay over an environment, in its own place, so that what the task changes
// in it is in the task's directory.
func overlayEnv(env, dir string) error {
	upper := filepath.Join(dir, privateDir, "upper")
	if err := os.MkdirAll(upper, 0o755); err != nil {
		return err
	}
	return overlay(env, upper, filepath.Join(dir, privateDir, "work"), env)
}

// overlay mounts an overlay at a directory.
func overlay(lower, upper, work, at string) error {
	if err := os.MkdirAll(work, 0o700); err != nil {
		return err
	}
	for _, p := range []string{lower, upper, work} {
		if strings.ContainsAny(p, `,:\"`) {
			return fmt.Errorf("%s has a character that overlays do not take", p)
		}
	}
	options := "lowerdir=" + lower + ",upperdir=" + upper + ",workdir=" + work
	if err := unix.Mount("overlay", at, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("an overlay is refused on this file system: %w", err)
	}
	return nil
}
