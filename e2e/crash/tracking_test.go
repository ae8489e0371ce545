package crash_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store/pgtest"
)

// TestKillTracking kills the server while eight clients log batches, each again and again until it
// is acknowledged, as MLflow's client does: every point and parameter is there, and once.
func TestKillTracking(t *testing.T) {
	_, kills, seed := sizes()
	w := newChaos(t, "")
	w.killTracking(kills, seed, w.killServer)
}

// TestKillTrackingPostgres is the same where experiments and runs are in PostgreSQL.
func TestKillTrackingPostgres(t *testing.T) {
	_, kills, seed := sizes()
	db, err := pgtest.Start()
	pgtest.Need(t, err)
	defer db.Stop()
	w := newChaos(t, "database: "+db.URL()+"\n")
	w.killTracking(kills, seed, w.killServer)
}

// TestTrackingOfServers is the same with three servers that share a PostgreSQL: the leader is
// killed, paused and cut off, and every server answers all the time.
func TestTrackingOfServers(t *testing.T) {
	_, faults, seed := serverSizes(2)
	g := newPeers(t, 3)
	g.leads(nil)
	n := 0
	g.killTracking(faults, seed, func(rng *rand.Rand) {
		f := serverFaults[n%len(serverFaults)]
		n++
		leader := g.leads(nil)
		f.do(g, leader, rng)
		t.Logf("%s (%q)", f.name, leader.name)
	})
}

// killServer kills the server.
func (w *chaos) killServer(*rand.Rand) { w.signal(syscall.SIGKILL, w.server()) }

const trackers = 8

func (w *chaos) mlflow(call string) string {
	ws := berth.Workspace{Subscription: "00000000-0000-0000-0000-000000000000", Group: "berth", Name: "default"}
	return ws.TrackingPath() + "/api/2.0/mlflow/" + call
}

// insist sends a request until it is answered with 200.
func (w *chaos) insist(call string, body any) []byte {
	w.t.Helper()
	var out []byte
	w.until(call, 2*time.Minute, func() (bool, error) {
		code, b, err := w.do("POST", w.mlflow(call), body)
		out = b
		return err == nil && code == http.StatusOK, fmt.Errorf("%d %s %w", code, b, err)
	})
	return out
}

func (w *chaos) killTracking(kills int, seed uint64, kill func(*rand.Rand)) {
	type o = map[string]any
	var acks atomic.Int64
	var over atomic.Bool
	var wg sync.WaitGroup
	var runs [trackers]string
	var batches [trackers]int64 // acknowledged
	for i := range trackers {
		var v struct {
			Run struct {
				Info struct {
					RunID string `json:"run_id"`
				}
			}
		}
		if err := json.Unmarshal(w.insist("runs/create", o{"experiment_id": "0", "start_time": 1}), &v); err != nil {
			w.t.Fatal(err)
		}
		runs[i] = v.Run.Info.RunID
	}
	for i, id := range runs {
		wg.Go(func() {
			for n := int64(0); !over.Load(); n++ {
				batch := o{"run_id": id, "metrics": []o{
					{"key": "a", "value": n, "timestamp": n, "step": n}, {"key": "b", "value": -n, "timestamp": n, "step": n}, {"key": fmt.Sprint("c", n%3), "value": "NaN", "timestamp": n, "step": n},
				}}
				if n%10 == 0 {
					batch["params"] = []o{{"key": fmt.Sprint("p", n), "value": fmt.Sprint(n)}}
				}
				w.insist("runs/log-batch", batch)
				batches[i] = n + 1
				acks.Add(1)
			}
		})
	}
	random := rand.New(rand.NewPCG(seed, 9))
	for range kills {
		next := acks.Load() + 1 + random.Int64N(200)
		w.until("batches", 2*time.Minute, func() (bool, error) { return acks.Load() >= next, nil })
		kill(random)
	}
	over.Store(true)
	wg.Wait()
	var lost, doubled int64
	for i, id := range runs {
		for _, key := range []string{"a", "b"} {
			l, d := w.points(id, key, batches[i])
			lost, doubled = lost+l, doubled+d
		}
		var v struct {
			Run struct {
				Data struct{ Params []struct{ Key, Value string } }
			}
		}
		w.read("runs/get?run_id="+id, &v)
		if got, want := int64(len(v.Run.Data.Params)), (batches[i]+9)/10; got != want {
			w.t.Errorf("run %s has %d parameters, of %d", id, got, want)
		}
	}
	w.t.Logf("%d batches were acknowledged over %d kills; of %d points %d were lost and %d doubled", acks.Load(), kills, 2*acks.Load(), lost, doubled)
	if lost > 0 || doubled > 0 {
		w.t.Errorf("of %d points %d were lost and %d doubled", 2*acks.Load(), lost, doubled)
	}
}

func (w *chaos) read(call string, v any) {
	w.t.Helper()
	w.until(call, time.Minute, func() (bool, error) {
		code, b, err := w.do("GET", w.mlflow(call), nil)
		if err != nil || code != http.StatusOK {
			return false, fmt.Errorf("%d %s %w", code, b, err)
		}
		err = json.Unmarshal(b, v)
		return err == nil, err
	})
}

// points counts which of the steps 0 to n-1 of a metric are not there, and how many points there
// are beyond one for each.
func (w *chaos) points(id, key string, n int64) (lost, doubled int64) {
	w.t.Helper()
	var v struct{ Metrics []struct{ Step int64 } }
	w.read("metrics/get-history?metric_key="+key+"&run_id="+id, &v)
	seen := map[int64]bool{}
	for _, m := range v.Metrics {
		seen[m.Step] = true
	}
	for step := range n {
		if !seen[step] {
			lost++
		}
	}
	return lost, int64(len(v.Metrics)) - (n - lost)
}
