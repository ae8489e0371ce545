package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/store"
)

// healthService serves the probes.
type healthService struct {
	db      *store.DB
	log     *slog.Logger
	blobs   *blob.Store
	gate    *gate
	healthy healthState
	front   *Server
}

const (
	// healthAge is how long what was found out about the database is told again, and healthTime how
	// long it may take to find out.
	healthAge  = time.Second
	healthTime = 3 * time.Second
)

// healthState is what was last found out about the database. Everybody may ask, so it is not asked
// for everybody.
type healthState struct {
	mu      sync.Mutex
	at      time.Time
	err     error
	servers []store.Server
}

// errNoDatabase is what everybody is told; the log has the reason, which may name machines and
// accounts.
var errNoDatabase = berth.Errorf(berth.Unavailable, "the database cannot be reached")

// usable is why the database cannot be used, nil when it can, and who uses it.
func (s *healthService) usable(ctx context.Context) ([]store.Server, error) {
	h := &s.healthy
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.at) < healthAge {
		return h.servers, h.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healthTime)
	defer cancel()
	h.err = nil
	err := s.db.Check(ctx)
	if err == nil {
		h.servers, err = s.db.Servers(ctx)
	}
	if err != nil || ctx.Err() != nil {
		s.log.Error("the database cannot be reached", "err", errors.Join(err, ctx.Err()))
		h.err = errNoDatabase
	}
	h.at = time.Now()
	return h.servers, h.err
}

// probe answers GET /healthz and GET /readyz, also while the server stops. Healthy is a server that
// can use its database; ready is one that takes requests and is heard by its database, too, and
// names the servers of its database where there can be several. A server that has not begun to
// serve answers nobody.
func (s *healthService) probe(w http.ResponseWriter, r *http.Request) {
	var servers []store.Server
	var err error
	switch ready := r.URL.Path == "/readyz"; {
	case ready && s.gate.stop.Err() != nil:
		err = errStopping
	case ready && s.db.Heard() != nil:
		err = s.db.Heard()
	default:
		servers, err = s.usable(r.Context())
	}
	if err != nil {
		s.front.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	text := "ok\n"
	for _, o := range servers {
		if r.URL.Path == "/readyz" && o.Alive {
			text += "server " + o.Name + map[bool]string{true: " leads\n", false: " follows\n"}[o.Leads]
		}
	}
	w.Write([]byte(text)) //nolint:errcheck // the client has gone
}

// trouble is why what this server shows may be behind, empty when it is not.
func (s *healthService) trouble() string {
	if err := s.db.Trouble(); err != nil {
		return "the server cannot keep what happens: " + err.Error()
	}
	if err := s.blobs.Full(); err != nil { // the database may still have room of its own; the host's journal, beside it, has none
		return "runners on this machine cannot keep what happens: " + err.Error()
	}
	return ""
}
