package api

import (
	"io"
	"net/http"
	"time"
)

// programsAtOnce is how many nodes fetch the program at the same time, and programTime how long one
// of them may take.
const (
	programsAtOnce = 16
	programTime    = 5 * time.Minute
)

// programs gives out the server's own program.
type programs struct {
	find  func(hash string) (io.ReadSeekCloser, error) // nil gives out nothing
	turns chan struct{}
}

// program gives out the server's own program to nodes of queueing systems. It needs no token: the
// program is public.
func (s *runnerService) program(w http.ResponseWriter, r *http.Request) {
	p := &s.programs
	if p.find == nil {
		http.NotFound(w, r)
		return
	}
	select {
	case p.turns <- struct{}{}:
		defer func() { <-p.turns }()
	default:
		w.Header().Set("Retry-After", "2")
		http.Error(w, "too many nodes fetch the program; try again", http.StatusServiceUnavailable)
		return
	}
	f, err := p.find(r.PathValue("hash"))
	if err != nil {
		s.log.Debug("the program is not given out", "err", err)
		http.NotFound(w, r)
		return
	}
	defer f.Close()
	out := http.NewResponseController(w)
	if err := out.SetWriteDeadline(time.Now().Add(programTime)); err != nil {
		s.log.Debug("the program is given out without a deadline", "err", err)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, f)
	_ = out.SetWriteDeadline(time.Time{}) // of the connection's next request
}
