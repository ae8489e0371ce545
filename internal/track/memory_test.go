package track_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/metrics"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// ends does to a run, an experiment and versions what gives room or ends them.
func (s *server) ends(run, experiment string) {
	s.t.Helper()
	s.must("POST", "runs/set-tag", obj{"run_id": run, "key": "tag", "value": "x"}) // no longer than it was
	s.must("POST", "experiments/delete", obj{"experiment_id": experiment})
	s.must("POST", "experiments/restore", obj{"experiment_id": experiment})
	s.must("POST", "runs/delete-tag", obj{"run_id": run, "key": "tag"})
	name := at(s.must("GET", "runs/get?run_id="+run, nil), "run", "info", "run_name")
	s.must("POST", "runs/update", obj{"run_id": run, "run_name": name, "status": "FINISHED", "end_time": 1_700_000_000_000})
	s.must("POST", "runs/search", obj{"experiment_ids": []string{experiment}, "filter": "metrics.loss = 1"})
	s.must("POST", "runs/delete", obj{"run_id": run})
	s.must("POST", "runs/restore", obj{"run_id": run})
	s.must("POST", "experiments/delete", obj{"experiment_id": experiment})
	s.must("POST", "experiments/restore", obj{"experiment_id": experiment})
	s.must("POST", "registered-models/alias", obj{"name": "M", "alias": "a", "version": "2"})
	s.must("POST", "model-versions/transition-stage", obj{"name": "M", "version": "2", "stage": "Archived"})
	s.must("POST", "registered-models/rename", obj{"name": "M", "new_name": "N"})
	s.must("POST", "registered-models/rename", obj{"name": "N", "new_name": "M"})
	s.must("DELETE", "registered-models/alias", obj{"name": "M", "alias": "a"})
	s.must("DELETE", "model-versions/delete", obj{"name": "M", "version": "1"})
}

// growing is what is refused where there is no room.
func (s *server) growing(run string) map[string]obj {
	return map[string]obj{
		"runs/create":              {"experiment_id": "0"},
		"experiments/create":       {"name": "more"},
		"registered-models/create": {"name": "more"},
		"model-versions/create":    {"name": "M", "source": "s3://b/more"},
		"logged-models":            {"experiment_id": "0", "name": "more"},
		"runs/log-parameter":       {"run_id": run, "key": "more", "value": "x"},
		"runs/set-tag":             {"run_id": run, "key": "more", "value": "x"},
		"runs/log-batch":           {"run_id": run, "params": []obj{{"key": "more", "value": "x"}}},
		"runs/log-metric":          {"run_id": run, "key": "more", "value": 1, "timestamp": 1},
	}
}

// grows wants all that refused.
func (s *server) grows(t *testing.T, run string) {
	t.Helper()
	for path, body := range s.growing(run) {
		if code, got := s.do("POST", path, body); code != http.StatusBadRequest || got["error_code"] != "RESOURCE_EXHAUSTED" {
			t.Errorf("%s: %d %v", path, code, got)
		}
	}
}

// filled makes a run of a new experiment, and a model.
func (s *server) filled(name string) (run, experiment string) {
	experiment = s.must("POST", "experiments/create", obj{"name": name})["experiment_id"].(string)
	run = s.newRun(experiment, nil)
	s.must("POST", "runs/log-batch", obj{
		"run_id": run, "tags": []obj{{"key": "tag", "value": "long enough"}},
		"metrics": []obj{{"key": "loss", "value": 1, "timestamp": 1, "step": 1}},
	})
	s.must("POST", "registered-models/create", obj{"name": "M"})
	for range 2 {
		s.must("POST", "model-versions/create", obj{"name": "M", "source": "s3://b/x"})
	}
	s.must("POST", "registered-models/alias", obj{"name": "M", "alias": "a", "version": "1"})
	return run, experiment
}

// TestMemoryIsBounded: where runs, models and series have taken the memory that they may, nothing
// new is taken from the workspace that has most of it; another goes on. What there is can be read,
// ended and deleted, and what was removed for good gives room, as it does after a restart.
func TestMemoryIsBounded(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	run, experiment := s.filled("e")
	little := s.memory()
	large := s.newRun("0", nil)
	for i := range 10 {
		s.must("POST", "runs/log-parameter", obj{"run_id": large, "key": fmt.Sprint("p", i), "value": strings.Repeat("x", 5000)})
		s.must("POST", "runs/log-metric", obj{"run_id": large, "key": fmt.Sprint("m", i), "value": 1, "timestamp": 1})
	}
	full := s.memory()
	if n := full - little; n < 50_000+10*200 || n > 200_000 {
		t.Errorf("a run with 50 kB of parameters and 10 metrics takes %d bytes", n)
	}
	s.stop()

	s = start(t, dir)
	s.must("GET", "experiments/get?experiment_id=0", nil)
	if n := s.memory(); n < full || n > full+2000 { // points may be in a compacted file by now
		t.Errorf("%d bytes after a restart, before it %d", n, full)
	}
	s.s.MaxMemory = full
	s.grows(t, run)
	other := *s
	other.ws = s.another("other")
	other.filled("e")
	s.grows(t, run)
	s.ends(run, experiment)

	s.must("POST", "runs/delete", obj{"run_id": large})
	for path := range s.growing(run) {
		if _, err := s.s.Clean(t.Context(), s.ws, "", berth.CleanStorage{Before: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		s.must("POST", path, s.growing(run)[path])
	}
}

// TestMemoryBeyondTheBound: beyond the bound everybody has a share, but together no more than a
// quarter of it; those workspaces count too that nobody has used since the server started.
func TestMemoryBeyondTheBound(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	fill := func(s *server) (n int) {
		for ; n < 1000; n++ {
			code, m := s.do("POST", "runs/create", obj{"experiment_id": "0", "tags": []obj{{"key": "k", "value": strings.Repeat("x", 8000)}}})
			if code != http.StatusOK {
				if m["error_code"] != "RESOURCE_EXHAUSTED" {
					t.Fatal(m)
				}
				return n
			}
		}
		return n
	}
	const most = 4 << 20
	s.s.MaxMemory = most
	var workspaces []track.Workspace
	for i := range 5 {
		workspaces = append(workspaces, s.another(fmt.Sprint("w", i)))
	}
	in := func(s *server, ws track.Workspace) *server {
		other := *s
		other.ws = ws
		return &other
	}
	if n := fill(in(s, workspaces[0])); n < 300 {
		t.Errorf("the first takes %d runs", n)
	}
	if n := fill(in(s, workspaces[1])); n < 50 {
		t.Errorf("the second takes %d runs beyond the bound", n)
	}
	for _, ws := range workspaces[2:] {
		fill(in(s, ws))
	}
	if n := s.memory(); n > most*5/4+100_000 {
		t.Errorf("together they take %d bytes", n)
	}
	s.stop()

	s = start(t, dir)
	s.s.MaxMemory = most
	s.must("GET", "experiments/get?experiment_id=0", nil)
	for s.memory() < most { // until the others are estimated
		time.Sleep(time.Millisecond)
	}
	if n := fill(s); n > 70 {
		t.Errorf("after a restart another one takes %d runs", n)
	}
}

// TestMemoryIsWhatIsCounted: of values and keys in all their forms, no more is kept than about what
// is counted, and little less.
func TestMemoryIsWhatIsCounted(t *testing.T) {
	many := func(n int, key, value string) (tags []obj) {
		for i := range n {
			tags = append(tags, obj{"key": fmt.Sprint(key, i), "value": value})
		}
		return tags
	}
	for name, add := range map[string]func(s *server, i int){
		"many small tags": func(s *server, i int) {
			s.must("POST", "runs/create", obj{"experiment_id": "0", "tags": many(5000, "", "")})
		},
		"few long tags": func(s *server, i int) {
			s.must("POST", "runs/create", obj{"experiment_id": "0", "tags": many(50, "k", strings.Repeat("x", 8000))})
		},
		"tags that are cut": func(s *server, i int) {
			s.must("POST", "runs/create", obj{"experiment_id": "0", "tags": many(10, "k", strings.Repeat("x", 800_000))})
		},
		"small runs": func(s *server, i int) {
			for range 100 {
				s.must("POST", "runs/create", obj{"experiment_id": "0"})
			}
		},
		"series with long keys": func(s *server, i int) {
			run := s.newRun("0", nil)
			var metrics []obj
			for k := range 500 {
				metrics = append(metrics, obj{"key": fmt.Sprint(i, "-", k, strings.Repeat("𝔸", 240)), "value": 1, "timestamp": 1})
			}
			s.must("POST", "runs/log-batch", obj{"run_id": run, "metrics": metrics})
		},
		"jobs": func(s *server, i int) {
			for k := range 20 {
				s.addJob(fmt.Sprint("job", i, "-", k), "u", strings.Repeat("e", 100_000)+fmt.Sprint(i, k))
			}
			s.must("POST", "runs/search", obj{"experiment_ids": []string{"0"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, t.TempDir())
			add(s, 100) // what is made once
			heap, counted := heapNow(), s.memory()
			for i := range 10 {
				add(s, i)
			}
			grown, said := heapNow()-heap, s.memory()-counted
			if grown > said*3/2+200_000 || said > 4*grown {
				t.Errorf("%d bytes are taken, and %d counted", grown, said)
			}
		})
	}
}

func heapNow() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestKeysAreForgotten: what is removed for good leaves no keys of its metrics.
func TestKeysAreForgotten(t *testing.T) {
	s := start(t, t.TempDir())
	s.must("POST", "runs/create", obj{"experiment_id": "0"})
	before := s.memory()
	run := s.newRun("0", nil)
	for i := range 10 {
		s.must("POST", "runs/log-metric", obj{"run_id": run, "key": fmt.Sprint("m", i), "value": 1, "timestamp": 1})
	}
	s.must("POST", "runs/delete", obj{"run_id": run})
	if _, err := s.s.Clean(t.Context(), s.ws, "", berth.CleanStorage{Before: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if n := s.memory(); n != before {
		t.Errorf("%d bytes are left of a run that is gone", n-before)
	}
}

// TestFullBatchIsRefusedWhole: where there is no room for the metrics of a batch, its parameters
// and tags are not written either.
func TestFullBatchIsRefusedWhole(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	s.must("POST", "runs/set-tag", obj{"run_id": run, "key": "k", "value": "long"})
	s.s.MaxMemory = 1
	s.want(http.StatusBadRequest, "POST", "runs/log-batch", obj{
		"run_id": run, "tags": []obj{{"key": "k", "value": "half"}}, "metrics": []obj{{"key": "m", "value": 1, "timestamp": 1}},
	})
	if tags := fmt.Sprint(at(s.must("GET", "runs/get?run_id="+run, nil), "run", "data", "tags")); strings.Contains(tags, "half") {
		t.Errorf("half of the batch was written: %s", tags)
	}
}

// TestFullWorkspaceTakesNoRuns: neither runs nor what makes them larger, but what there is can be
// ended and deleted.
func TestFullWorkspaceTakesNoRuns(t *testing.T) {
	s := start(t, t.TempDir())
	run, experiment := s.filled("e")
	s.who.Full = func(context.Context) error { return berth.Errorf(berth.Limit, "it is full") }
	s.grows(t, run)
	s.ends(run, experiment)
}

// memory is what the server counts.
func (s *server) memory() int64 {
	var w metrics.Writer
	s.s.Metrics(&w)
	for line := range strings.Lines(w.String()) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "berth_tracking_memory_bytes "); ok {
			f, err := strconv.ParseFloat(n, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return int64(f)
		}
	}
	s.t.Fatal("no memory is counted")
	return 0
}

// another makes one more workspace.
func (s *server) another(name string) track.Workspace {
	s.t.Helper()
	ws := track.Workspace{Of: ofTests, Storage: locate.Storage{ID: name, Blobs: "blobs" + name, Artifacts: "artifacts" + name}}
	ws.Of.Name = name
	ws.Key = ws.Of.Key()
	err := s.db.Update(s.t.Context(), func(tx *store.Tx) error {
		own, err := json.Marshal(ws.Storage)
		if err != nil {
			return err
		}
		d := &store.Doc{Kind: "workspaces", Name: ws.Key, Parent: ws.Of.ID(), Own: own}
		err = tx.Insert(d)
		ws.Doc, ws.Created = d.ID, d.Created
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return ws
}
