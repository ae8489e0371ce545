//go:build !windows

package cluster

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/host"
)

// AddNode is [driver.Scaler.AddNode].
func (d *Driver) AddNode(ctx context.Context, s driver.NodeSpec) error {
	if err := d.check(ctx, s); err != nil {
		return err
	}
	release, err := d.hold(ctx, s.Name)
	if err != nil {
		return err
	}
	defer release()
	n, err := d.node(s.Name)
	if err != nil {
		if n, err = d.prepare(ctx, s); err != nil {
			return berth.Errorf(berth.Unavailable, "creating node %s: %w", s.Name, err)
		}
	}
	if err := n.start(ctx); err != nil {
		return berth.Errorf(berth.Unavailable, "starting node %s: %w", s.Name, err)
	}
	return nil
}

// check refuses what can never be a node here.
func (d *Driver) check(ctx context.Context, s driver.NodeSpec) error {
	if err := berth.CheckName("node", s.Name); err != nil {
		return err
	}
	if s.CPUs < 0 || s.Memory < 0 || s.Slots < 0 {
		return berth.Errorf(berth.Invalid, "node %s cannot have %v CPUs, %d bytes of memory and %d slots", s.Name, s.CPUs, s.Memory, s.Slots)
	}
	if len(s.GPUs) == 0 {
		return nil
	}
	all, err := d.gpus(ctx)
	if err != nil {
		return err
	}
	for _, i := range s.GPUs {
		if _, ok := find(all, i); !ok {
			return berth.Errorf(berth.Invalid, "node %s cannot have GPU %d: this machine has %d", s.Name, i, len(all))
		}
	}
	return nil
}

// prepare makes the directory of a node. What an earlier removal left is removed first. The node is
// held.
func (d *Driver) prepare(ctx context.Context, s driver.NodeSpec) (*node, error) {
	if _, err := os.Lstat(filepath.Join(d.c.Dir, s.Name, removedFile)); err == nil {
		if err := d.clear(ctx, s.Name); err != nil {
			return nil, err
		}
	}
	n := d.open(s.Name, record{Spec: s})
	d.mu.Lock()                     // the directory of all nodes goes with the last one
	err := os.Mkdir(d.c.Dir, 0o700) // not what is above it: a home that was moved away must not be made again
	if err == nil || errors.Is(err, os.ErrExist) {
		err = os.MkdirAll(n.dir, 0o700)
	}
	d.mu.Unlock()
	if err == nil {
		err = n.save(record{Spec: s, Groups: runner.NodeGroups(n.unique())})
	}
	if err != nil {
		return nil, err
	}
	return d.node(s.Name)
}

// RemoveNode is [driver.Scaler.RemoveNode].
func (d *Driver) RemoveNode(ctx context.Context, name string) error {
	if berth.CheckName("node", name) != nil {
		return nil // there can be none
	}
	release, err := d.hold(ctx, name)
	if err != nil {
		return err
	}
	defer release()
	d.mu.Lock()
	d.drop(name)
	d.mu.Unlock()
	if err := d.clear(ctx, name); err != nil {
		return berth.Errorf(berth.Unavailable, "removing node %s: %w", name, err)
	}
	return nil
}

// clear ends and removes everything of a node, as far as it came. The node is held.
func (d *Driver) clear(ctx context.Context, name string) error {
	dir := filepath.Join(d.c.Dir, name)
	removed := filepath.Join(dir, removedFile)
	// From here on it takes no task and nobody starts its host, while what has to go is still
	// known.
	if err := os.Rename(filepath.Join(dir, recordFile), removed); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r, err := load(removed)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Error("record of a node not understood", "node", name, "err", err)
		r.Groups = runner.NodeGroups(GroupName(d.c.Dir) + name) // where they would be made
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) { // it is removed, or somebody took the directory only
		g := runner.NodeGroups(GroupName(d.c.Dir) + name)
		if err := d.kill(ctx, dir, g); err != nil {
			return err
		}
		return g.Remove()
	}
	if err := d.unbox(ctx, name, r.Groups); err != nil {
		return err
	}
	if err := d.kill(ctx, dir, r.Groups); err != nil {
		return err
	}
	if err := host.Shutdown(ctx, dir); err != nil { // returns when the last of them has let go of its files
		return err
	}
	if err := r.Groups.Remove(); err != nil {
		return err
	}
	if err := host.RemoveDir(dir); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = os.Remove(d.c.Dir) // when it is empty
	return nil
}

// unbox ends what runs in containers on a node. They are the container engine's, so only the host
// can tell which they are, and for that it has to run.
func (d *Driver) unbox(ctx context.Context, name string, g runner.Groups) error {
	dir := filepath.Join(d.c.Dir, name)
	if !host.HasContainers(dir) {
		return nil
	}
	if err := host.Start(ctx, dir, d.c.Host, g); err != nil {
		return err
	}
	c := host.NewClient(dir)
	defer c.Close()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		all, err := c.Tasks(ctx)
		if err != nil {
			return err
		}
		left := 0
		for _, s := range all {
			if s.State == berth.TaskDone || s.PID != 0 {
				continue
			}
			left++
			if err := c.Stop(ctx, s.Task, host.Stop{Grace: time.Millisecond, Why: "its node was given back"}); err != nil {
				return err
			}
		}
		if left == 0 {
			return nil
		}
		if !pause(ctx, wait) {
			return berth.Errorf(berth.Unavailable, "its containers do not end: %w", context.Cause(ctx))
		}
	}
}

// kill ends every process of a node: those in its groups, and then those that are known by their
// marks, until there are none. What is killed may have forked the moment before.
func (d *Driver) kill(ctx context.Context, dir string, g runner.Groups) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		found := g.Kill()
		if !found {
			for _, pid := range d.search.find(dir) {
				found = true
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if !found {
			return nil
		}
		if !pause(ctx, wait) {
			return berth.Errorf(berth.Unavailable, "its processes do not end: %w", context.Cause(ctx))
		}
	}
}

// pause waits, or says false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
