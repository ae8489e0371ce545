package track_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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
	s.must("POST", "runs/delete-tag", obj{"run_id": run, "key": "tag"})
	s.must("POST", "runs/update", obj{"run_id": run, "status": "FINISHED", "end_time": 1_700_000_000_000})
	s.must("POST", "runs/search", obj{"experiment_ids": []string{experiment}, "filter": "metrics.loss = 1"})
	s.must("POST", "runs/delete", obj{"run_id": run})
	s.must("POST", "runs/restore", obj{"run_id": run})
	s.must("POST", "experiments/delete", obj{"experiment_id": experiment})
	s.must("POST", "experiments/restore", obj{"experiment_id": experiment})
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
	if n := s.memory(); n != full {
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
