package host

import (
	"sync"
	"syscall"

	"github.com/berthml/berth/internal/runner"
)

// logs hands log files that nothing was written to on to the next tasks, for the reason that
// directories are: see dirs. A log that is not there reads as an empty one.
//
// A file changes hands only while nobody else has it open, or whoever follows the old log would
// read the new one. Who has found the old name but not opened it yet sees after opening that the
// name is gone.
type logs struct {
	mu    sync.Mutex
	spare []spareLog
}

// spareLog is an empty file, still in its old place and open for appending.
type spareLog struct {
	path string
	fd   int
}

// take opens the log of a task for appending.
func (l *logs) take(path string) (int, error) {
	l.mu.Lock()
	n := len(l.spare)
	if n == 0 {
		l.mu.Unlock()
		return runner.OpenLog(path)
	}
	s := l.spare[n-1]
	l.spare = l.spare[:n-1]
	l.mu.Unlock()
	if !moveUnshared(s.fd, s.path, path) {
		syscall.Close(s.fd)
		return runner.OpenLog(path)
	}
	return s.fd, nil
}

// give offers the log of a task that was removed. clean says that no process of the task is left.
func (l *logs) give(path string, clean bool) {
	if path == "" || !clean {
		return
	}
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_APPEND|syscall.O_CLOEXEC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.spare) >= maxSpare || !blank(fd) {
		syscall.Close(fd)
		return
	}
	l.spare = append(l.spare, spareLog{path, fd})
}

// blank says that a file is as runner.OpenLog makes it.
func blank(fd int) bool {
	var st syscall.Stat_t
	return syscall.Fstat(fd, &st) == nil && st.Mode == syscall.S_IFREG|0o600 && st.Size == 0 && st.Nlink == 1
}

// close lets go of the spares.
func (l *logs) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.spare {
		syscall.Close(s.fd)
	}
	l.spare = nil
}
