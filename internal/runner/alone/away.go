//go:build unix

package alone

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

const (
	// awayTime is how long a process that has nothing to run waits for its server: it holds what
	// the queueing system gave it meanwhile.
	awayTime = 10 * time.Minute
	// awayAgain is how long it waits where another on its node has waited for all that time, within
	// awayKept. Otherwise the jobs of a large array would wait one after the other.
	awayAgain = 30 * time.Second
	awayKept  = time.Hour
)

// patience is how long processes on this node wait for a server to say what they are to run.
type patience struct {
	first, again time.Duration
	file         string // is there after one has waited in vain; empty where nothing can be kept
	log          *slog.Logger
}

func newPatience(server string, log *slog.Logger) patience {
	p := patience{first: awayTime, again: awayAgain, log: log}
	if dir, err := NodeDir(); err == nil {
		name := sha256.Sum256([]byte(server))
		p.file = filepath.Join(dir, "away-"+hex.EncodeToString(name[:8]))
	}
	return p
}

// left is for how long to wait.
func (p patience) left() time.Duration {
	info, err := os.Stat(p.file)
	if err != nil || time.Since(info.ModTime()) > awayKept {
		return p.first
	}
	return p.again
}

// answered notes that the server is there.
func (p patience) answered() {
	if p.file != "" {
		_ = os.Remove(p.file) // it is rarely there
	}
}

// over notes that the server was waited for in vain.
func (p patience) over() {
	p.log.Error("the server could not be asked what to run")
	if p.file == "" {
		return
	}
	if err := os.WriteFile(p.file, []byte("\n"), 0o600); err != nil { // which also makes it new
		p.log.Warn("others will wait as long", "err", err)
	}
}
