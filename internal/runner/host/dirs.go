package host

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/cache"
)

// dirs makes and removes the directories of tasks. One that a task left as it found it serves the
// next: ext4 takes its time over inodes that were freed in the last seconds, and short tasks would
// spend more on their directories than on themselves.
type dirs struct {
	root string
	log  *slog.Logger

	mu    sync.Mutex
	spare []spare
	used  map[string]spare // directories in use whose times tell whether they changed
	n     int              // of spares and trash so far
	group sync.WaitGroup
}

// spare is a directory that is as runner.MakeDir makes it, and the times that a change of it would
// change.
type spare struct {
	path  string
	stamp [3]syscall.Timespec
}

// maxSpare is how many directories wait for a task.
const maxSpare = 256

func openDirs(root string, log *slog.Logger) (*dirs, error) {
	d := &dirs{root: root, log: log, used: map[string]spare{}}
	// Spares of an earlier worker may be in any state.
	if err := os.RemoveAll(filepath.Join(root, "spare")); err != nil {
		log.Warn("removing spare directories", "err", err)
	}
	for _, n := range []string{"tasks", "spare", "trash"} {
		if err := os.Mkdir(filepath.Join(root, n), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
	}
	old, _ := filepath.Glob(filepath.Join(root, "trash", "*"))
	if len(old) > 0 {
		d.group.Go(func() {
			for _, dir := range old {
				d.destroy(dir)
			}
		})
	}
	return d, nil
}

// close waits for deletions under way.
func (d *dirs) close() { d.group.Wait() }

// take makes the directory of a task.
func (d *dirs) take(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.spare); n > 0 {
		s := d.spare[n-1]
		d.spare = d.spare[:n-1]
		if syscall.Rename(s.path, dir) == nil {
			if old(s.stamp) {
				d.used[dir] = s
			}
			return nil
		}
	}
	return runner.MakeDir(dir)
}

// give takes the directory of a task back. clean says that no process of the task can be left to
// write into it.
func (d *dirs) give(dir string, clean bool) {
	d.mu.Lock()
	d.n++
	n := d.n
	was, known := d.used[dir]
	delete(d.used, dir)
	clean = clean && len(d.spare) < maxSpare
	d.mu.Unlock()
	if clean {
		stamp, ok := stampOf(dir)
		if ok && (known && stamp == was.stamp || untouched(dir)) {
			to := filepath.Join(d.root, "spare", strconv.Itoa(n))
			if syscall.Rename(dir, to) == nil {
				d.mu.Lock()
				d.spare = append(d.spare, spare{to, stamp})
				d.mu.Unlock()
				return
			}
		}
	}
	trash := filepath.Join(d.root, "trash", fmt.Sprint(filepath.Base(dir), ".", n))
	if err := os.Rename(dir, trash); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return
		}
		trash = dir // a full disk may have no room for another name
	}
	d.group.Go(func() { d.destroy(trash) })
}

// old says whether the times are old enough to tell a change by: a file system's clock may stand
// still for some milliseconds, and a change within them would not show.
func old(stamp [3]syscall.Timespec) bool {
	limit := time.Now().Add(-time.Second)
	for _, s := range stamp {
		if !time.Unix(s.Unix()).Before(limit) {
			return false
		}
	}
	return true
}

// destroy deletes a directory.
func (d *dirs) destroy(dir string) {
	if err := cache.RemoveAll(dir); err != nil {
		d.log.Error("directory of a task not removed", "dir", dir, "err", err)
	}
}

// untouched says whether a task's directory is as runner.MakeDir made it.
func untouched(dir string) bool {
	wd := filepath.Join(dir, "wd")
	return holds(dir, "wd") && holds(wd, "outputs") && holds(filepath.Join(wd, "outputs"), "")
}

// holds says whether a directory of ours holds exactly one entry, called name, or none when name is
// empty.
func holds(dir, name string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Mode() != os.ModeDir|0o700 || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		return false
	}
	names, _ := f.Readdirnames(2)
	if name == "" {
		return len(names) == 0
	}
	return len(names) == 1 && names[0] == name
}
