package app_test

import (
	"net/http"
	"os"
	"path"
	"path/filepath"
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

// TestLeaderThatIsCutOff: a leader whose connections to the database hang says so at /readyz, and
// the other server leads. When it is heard again it follows, and jobs run.
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

// openBelow are the files below a directory that this process, and so each server of a test, has
// open.
func openBelow(t *testing.T, dir string) (open []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, dir+"/") {
			open = append(open, to)
		}
	}
	return open
}

// TestFollowerDeletesWorkspace: the points of a workspace that is deleted at a server that does not
// lead are removed by the one that has them open, which closes them first.
func TestFollowerDeletesWorkspace(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("what is open cannot be listed here")
	}
	leader, follower := twoServers(t)
	ws := strings.TrimSuffix(leader.ws, "/"+path.Base(leader.ws)) + "/other"
	if code, m := follower.do("PUT", ws, map[string]any{"location": "local", "properties": map[string]any{}}); code/100 != 2 {
		t.Fatalf("workspace: %d %v", code, m)
	}
	api := "/mlflow/v1.0" + ws + "/api/2.0/mlflow/"
	code, m := follower.do("POST", api+"runs/create", map[string]any{"experiment_id": "0"})
	if code != http.StatusOK {
		t.Fatalf("run: %d %v", code, m)
	}
	metric := map[string]any{"run_id": at(m, "run", "info", "run_id"), "key": "m", "value": 1, "timestamp": 1, "step": 1}
	if code, m := follower.do("POST", api+"runs/log-metric", metric); code != http.StatusOK {
		t.Fatalf("metric: %d %v", code, m)
	}
	journals, _ := filepath.Glob(filepath.Join(leader.home, "tracking", "*", "*.log"))
	if len(journals) != 1 || len(openBelow(t, filepath.Dir(journals[0]))) != 1 {
		t.Fatalf("journals %v, open %v", journals, openBelow(t, leader.home))
	}
	if code, m := follower.do("DELETE", ws, nil); code != http.StatusOK {
		t.Fatalf("delete: %d %v", code, m)
	}
	dir := filepath.Dir(journals[0])
	leader.eventually("the points are gone", func() bool { _, err := os.Stat(dir); return os.IsNotExist(err) })
	leader.eventually("nobody has them open", func() bool { return len(openBelow(t, dir)) == 0 })
}
