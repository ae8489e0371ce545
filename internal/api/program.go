package api

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// build is the server's own program and the hash of it.
type build struct {
	path string

	mu   sync.Mutex
	hash string // empty until it was asked for
}

// program gives out the server's own program, to nodes of queueing systems that do not have it. It
// is no secret, and whoever asks knows its hash.
func (s *runnerService) program(w http.ResponseWriter, r *http.Request) {
	f, err := s.build.open(r.PathValue("hash"))
	if err != nil {
		s.log.Debug("no program is given out", "err", err)
		http.NotFound(w, r)
		return
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, f)
}

// open opens the program if it has that hash.
func (b *build) open(hash string) (*os.File, error) {
	if b.path == "" || len(hash) != 2*sha256.Size {
		return nil, berth.Errorf(berth.NotFound, "this server has no such program")
	}
	f, err := os.Open(b.path)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hash == "" {
		h := sha256.New()
		if _, err := io.Copy(h, f); err != nil {
			f.Close()
			return nil, err
		}
		b.hash = hex.EncodeToString(h.Sum(nil))
	}
	if hash != b.hash {
		f.Close()
		return nil, berth.Errorf(berth.NotFound, "this server has no such program")
	}
	_, err = f.Seek(0, io.SeekStart)
	return f, err
}
