package app_test

import (
	"fmt"
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
	name string
	way  *pgtest.Proxy
}

// twoServers are the servers of one home and one PostgreSQL: the one that leads, whichever that is,
// and the other.
func twoServers(t *testing.T) (leader, follower *peer) {
	t.Helper()
	db, err := pgtest.Start("-F")
	pgtest.Need(t, err)
	t.Cleanup(db.Stop)
	url, home := db.Schema(t), shortHome(t)
	start := func(as, name string) *peer {
		p := &peer{name: name, way: db.Proxy(t)}
		cfg := config.Default(home)
		cfg.Name, cfg.Database = as, p.way.Through(t, url)
		p.server = startAs(t, cfg)
		return p
	}
	return agree(start("", "main"), start("b", "b")) // the first has no name
}

// agree waits until two servers say the same of who leads. A server that stalls for longer than its
// lease loses the lead at any time.
func agree(a, b *peer) (leader, follower *peer) {
	a.t.Helper()
	a.eventually("one leads and the other follows", func() bool {
		for _, l := range [][2]*peer{{a, b}, {b, a}} {
			leads, follows := "server "+l[0].name+" leads\n", "server "+l[1].name+" follows\n"
			if a.ready(leads) && a.ready(follows) && b.ready(leads) && b.ready(follows) {
				leader, follower = l[0], l[1]
				return true
			}
		}
		return false
	})
	return leader, follower
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
// the other server leads. When it is heard again both agree on who leads, and jobs run.
func TestLeaderThatIsCutOff(t *testing.T) {
	first, second := twoServers(t)
	first.way.Set(true, false)
	first.eventually("the first is cut off", func() bool { return first.ready("has lost its database") })
	second.eventually("the second leads", func() bool { return second.ready("server " + second.name + " leads\n") })
	if code, _ := first.do("GET", "/readyz", nil); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz of the first: %d", code)
	}
	second.submit("meanwhile", "echo one")
	if log, status := second.wait("meanwhile"); log != "one\n" || status != "Completed" {
		t.Errorf("log %q, status %v", log, status)
	}
	first.way.Set(false, false)
	agree(first, second)
	first.submit("after", "echo two")
	if log, status := first.wait("after"); log != "two\n" || status != "Completed" {
		t.Errorf("log %q, status %v", log, status)
	}
}

// track sends a tracking request, again as long as no server leads, and returns its answer.
func (s *server) track(ws, call string, body map[string]any) (answer map[string]any) {
	s.t.Helper()
	s.eventually(call, func() bool {
		code, m := s.do("POST", "/mlflow/v1.0"+ws+"/api/2.0/mlflow/"+call, body)
		if code != http.StatusOK && code != http.StatusServiceUnavailable {
			s.t.Fatalf("%s: %d %v", call, code, m)
		}
		answer = m
		return code == http.StatusOK
	})
	return answer
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

// TestFollowerCleansMetrics: a server that does not lead passes on requests that remove points.
func TestFollowerCleansMetrics(t *testing.T) {
	leader, follower := twoServers(t)
	m := follower.track(follower.ws, "runs/create", map[string]any{"experiment_id": "0"})
	run := at(m, "run", "info", "run_id")
	follower.track(follower.ws, "runs/log-metric", map[string]any{"run_id": run, "key": "m", "value": 1, "timestamp": 1})
	follower.track(follower.ws, "runs/delete", map[string]any{"run_id": run})
	for _, s := range []*peer{follower, leader} {
		q := map[string]any{"kinds": []string{"metrics"}, "before": time.Now().Add(time.Second), "dryRun": s == follower}
		if code, m := s.do("POST", s.ws+"/cleanStorage", q); code != http.StatusOK || fmt.Sprint(m["runs"], m["dryRun"]) != fmt.Sprint(1, s == follower) {
			t.Errorf("%s: %d %v", s.name, code, m)
		}
	}
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
	m := follower.track(ws, "runs/create", map[string]any{"experiment_id": "0"})
	metric := map[string]any{"run_id": at(m, "run", "info", "run_id"), "key": "m", "value": 1, "timestamp": 1, "step": 1}
	var journals []string
	leader.eventually("the points are open", func() bool { // a leader that has just begun opens them with the next point
		follower.track(ws, "runs/log-metric", metric)
		journals, _ = filepath.Glob(filepath.Join(leader.home, "tracking", "*", "*.log"))
		return len(journals) == 1 && len(openBelow(t, filepath.Dir(journals[0]))) == 1
	})
	if code, m := follower.do("DELETE", ws, nil); code != http.StatusOK {
		t.Fatalf("delete: %d %v", code, m)
	}
	dir := filepath.Dir(journals[0])
	leader.eventually("the points are gone", func() bool { _, err := os.Stat(dir); return os.IsNotExist(err) })
	leader.eventually("nobody has them open", func() bool { return len(openBelow(t, dir)) == 0 })
}
