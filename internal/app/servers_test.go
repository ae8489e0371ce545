package app_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth/internal/config"
	"github.com/berthml/berth/internal/store/pgtest"
)

// peer is one of two servers of a home, with its way to their database.
type peer struct {
	*server
	way *pgtest.Proxy
}

// twoServers are the servers of one home and one PostgreSQL. The first leads.
func twoServers(t *testing.T) (leader, follower *peer) {
	t.Helper()
	db, err := pgtest.Start("-F")
	pgtest.Need(t, err)
	t.Cleanup(db.Stop)
	url, home := db.Schema(t), shortHome(t)
	var both []*peer
	for _, name := range []string{"", "b"} {
		p := &peer{way: db.Proxy(t)}
		cfg := config.Default(home)
		cfg.Name, cfg.Database = name, p.way.Through(t, url)
		p.server = startAs(t, cfg)
		both = append(both, p)
		both[0].eventually("server main leads", func() bool { return both[0].ready("server main leads") })
	}
	both[1].eventually("server b follows", func() bool { return both[1].ready("server main leads\n") && both[1].ready("server b follows\n") })
	return both[0], both[1]
}

// ready says whether GET /readyz says something.
func (s *server) ready(says string) bool {
	_, m := s.do("GET", "/readyz", nil)
	raw, _ := m["raw"].(string)
	if e, ok := m["error"].(map[string]any); ok {
		raw, _ = e["message"].(string)
	}
	return strings.Contains(raw, says)
}

func (s *server) eventually(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: not so", what)
		}
	}
}

// TestLeaderThatIsCutOff: a leader whose connections to the database hang says so at /readyz, and the other server leads. When it is heard
// again it follows, and jobs run.
func TestLeaderThatIsCutOff(t *testing.T) {
	first, second := twoServers(t)
	first.way.Set(true, false)
	first.eventually("the first is cut off", func() bool { return first.ready("cut off from its database") })
	second.eventually("the second leads", func() bool { return second.ready("server b leads") })
	if code, _ := first.do("GET", "/readyz", nil); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz of the first: %d", code)
	}
	second.submit("meanwhile", "echo one")
	if log, status := second.wait("meanwhile"); log != "one\n" || status != "Completed" {
		t.Errorf("log %q, status %v", log, status)
	}
	first.way.Set(false, false)
	first.eventually("the first follows", func() bool { return first.ready("server main follows") })
	first.submit("after", "echo two")
	if log, status := first.wait("after"); log != "two\n" || status != "Completed" {
		t.Errorf("log %q, status %v", log, status)
	}
}
