//go:build unix

package dir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/host"
)

// Dir is a driver's directory.
type Dir struct {
	path string
	seen host.Terms
}

// Open returns the directory at path, which need not exist yet.
func Open(path string) *Dir { return &Dir{path: path, seen: host.Terms{Dir: path}} }

// Admit refuses a server that no longer leads, as far as this process knows, see [berth.WithTerm].
func (d *Dir) Admit(ctx context.Context) error {
	term := berth.TermOf(ctx)
	if term == 0 {
		return nil
	}
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return err
	}
	_, err := d.seen.Admit(term, berth.TermProof(ctx))
	return err
}

// Hold keeps other servers from submitting a task until release is called, and refuses a server
// that no longer leads. The kernel releases it when this process ends.
func (d *Dir) Hold(ctx context.Context, name string) (release func(), err error) {
	term := berth.TermOf(ctx)
	if term == 0 {
		return func() {}, nil
	}
	dir := filepath.Join(d.path, "locks")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// Tasks are spread over a few locks, so that the files need not be removed.
	f, err := os.OpenFile(filepath.Join(dir, name[len(name)-1:]), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil || !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, berth.Errorf(berth.Unavailable, "another server is submitting tasks: %w", err)
		}
	}
	// Another process may have noted a later term, so what this one remembers does not count.
	if _, err := (&host.Terms{Dir: d.path}).Admit(term, berth.TermProof(ctx)); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}
