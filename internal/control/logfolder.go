package control

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"sync"

	"github.com/berthml/berth"
)

// logFolder is the number of the folder that the log of an id is in, one of 256.
func logFolder(id string) uint8 {
	h := fnv.New32a()
	h.Write([]byte(id)) // a hash does not fail
	return uint8(h.Sum32())
}

// logPath is where a log is, below the directory of blobs.
func logPath(workspace, id string) string {
	return fmt.Sprintf("logs/%02x/%s-%s.txt", logFolder(id), workspace[:8], id)
}

// processLogID names the log of a process of a distributed task, but for its first.
func processLogID(t berth.TaskID, rank int) string { return fmt.Sprint(t, ".p", rank) }

// logFolders makes the folders of logs as they are needed.
type logFolders struct {
	dir  string
	mu   sync.Mutex
	made [256]bool
}

// make makes the folder of an id's log.
func (f *logFolders) make(id string) error {
	n := logFolder(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.made[n] {
		return nil
	}
	// Not what is above them: a home that was moved away must not be made again.
	logs := filepath.Join(f.dir, "logs")
	for _, dir := range []string{logs, filepath.Join(logs, fmt.Sprintf("%02x", n))} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	f.made[n] = true
	return nil
}
