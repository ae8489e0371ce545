package cache

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Names in tmp begin with that of their owner, a cache that is open. It has a file in owners, which
// it holds locked as long as it lives: what it makes may take days.

// newOwner is what names of a cache in tmp begin with. The number of its process is for owners
// of before, which had no files.
func newOwner() string {
	return strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
}

// ownerOf is the owner of a name in tmp.
func ownerOf(name string) string { return name[:max(strings.LastIndexByte(name, '-'), 0)] }

// own makes the file of this owner, unless it is there.
func (c *Cache) own() error {
	c.owning.Lock()
	defer c.owning.Unlock()
	path := c.path("owners", c.owner)
	if c.life != nil {
		if there, err := os.Stat(path); err == nil {
			if ours, err := c.life.Stat(); err == nil && os.SameFile(ours, there) {
				return nil
			}
		}
		c.life.Close() // the cache was deleted
		c.life = nil
	}
	made := c.path(c.owner) // elsewhere until it is locked: nobody takes it for a dead one's
	f, err := os.OpenFile(made, os.O_CREATE|os.O_RDWR, 0o600)
	if berth.IsDiskFull(err) { // the cache is to make room there
		return nil
	}
	if err != nil {
		return err
	}
	if ok, err := lockShared(f); err != nil || !ok {
		f.Close()
		return os.Remove(made) // a file system without locks: the process and the time say
	}
	if err := os.Rename(made, path); err != nil {
		f.Close()
		return err
	}
	c.life = f
	return nil
}

// disown removes the file of this owner.
func (c *Cache) disown() {
	c.owning.Lock()
	defer c.owning.Unlock()
	if c.life != nil {
		_ = os.Remove(c.path("owners", c.owner))
		c.life.Close()
		c.life = nil
	}
}

// deadOwners are the owners that do not live any more. forget removes their files.
func (c *Cache) deadOwners() (dead map[string]bool, forget func()) {
	dead = map[string]bool{}
	var held []*os.File
	entries, _ := os.ReadDir(c.path("owners")) // without it there are none
	for _, e := range entries {
		f, err := os.OpenFile(c.path("owners", e.Name()), os.O_RDWR, 0) // NFS locks no others
		if err != nil {
			continue
		}
		if !lockExclusive(f) {
			f.Close()
			continue
		}
		dead[e.Name()] = true
		held = append(held, f)
	}
	return dead, func() {
		for _, f := range held {
			_ = os.Remove(c.path("owners", filepath.Base(f.Name())))
			f.Close()
		}
	}
}

// abandoned says whether nobody works on something in tmp.
func (c *Cache) abandoned(e os.DirEntry, dead map[string]bool) bool {
	owner := ownerOf(e.Name())
	if dead[owner] {
		return true
	}
	if _, err := os.Stat(c.path("owners", owner)); err == nil && owner != "" {
		return false
	}
	head, _, _ := strings.Cut(e.Name(), "-")
	pid, err := strconv.Atoi(head)
	if err != nil || !alive(pid) {
		return true
	}
	info, err := e.Info()
	return err == nil && time.Since(info.ModTime()) > old
}
