package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// caFiles keeps the certificates of servers where commands can read them: once for all tasks,
// because a task's directory that is left as it was made serves the next one.
type caFiles struct {
	dir string

	mu    sync.Mutex
	known map[string]fs.FileInfo // by path, as this process wrote it
}

// keep returns the path of a file that holds pem. One that was touched since is replaced; it is not
// opened, for it may be anything.
func (c *caFiles) keep(pem string) (string, error) {
	sum := sha256.Sum256([]byte(pem))
	path := filepath.Join(c.dir, "ca-"+hex.EncodeToString(sum[:8])+".pem")
	c.mu.Lock()
	defer c.mu.Unlock()
	now, err := os.Lstat(path)
	if was := c.known[path]; err == nil && was != nil && os.SameFile(was, now) && was.Mode() == now.Mode() && was.Size() == now.Size() && was.ModTime().Equal(now.ModTime()) {
		return path, nil
	}
	fresh := path + ".new" // an earlier process may have left one
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	f, err := os.OpenFile(fresh, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(pem)
	info, statErr := f.Stat()
	if err = errors.Join(err, statErr, f.Close()); err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(fresh))
	}
	if c.known == nil {
		c.known = map[string]fs.FileInfo{}
	}
	c.known[path] = info
	return path, nil
}
