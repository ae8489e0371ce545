package track_test

import (
	"bytes"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth/internal/metrics"
	"github.com/berthml/berth/internal/store"
)

// updates is how many updates of the database there were.
func (s *server) updates() int {
	s.t.Helper()
	var w metrics.Writer
	s.db.Metrics(&w)
	_, after, _ := strings.Cut(w.String(), "\nberth_store_updates_total ")
	text, _, _ := strings.Cut(after, "\n")
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// TestManyRunsAreCollectedTogether: runs are removed many in a transaction, however it was found
// that they are due, and one that cannot be read is in nobody's way.
func TestManyRunsAreCollectedTogether(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	const many, collectPage = 250, 100
	var ids []string
	for range many {
		id := s.newRun("0", nil)
		ids = append(ids, id)
		s.must("POST", "runs/delete", obj{"run_id": id})
	}
	if code, _, out := s.raw("PUT", "/api/2.0/mlflow-artifacts/artifacts/0/"+ids[7]+"/artifacts/f", "text/plain", "text"); code != 200 {
		t.Fatal(out)
	}
	s.edit("mlflow/runs", ids[3], func(d *store.Doc) { d.Own = []byte(`{"ID": 1}`) })
	before := s.updates()
	if n, err := s.s.Collect(t.Context(), time.Now().Add(time.Second)); n != many-1 || err != nil {
		t.Errorf("%d runs were removed: %v", n, err)
	}
	if n := s.updates() - before; n > collectPage+20 {
		t.Errorf("%d updates with one that cannot be read", n)
	}
	s.edit("mlflow/runs", ids[3], func(d *store.Doc) { d.Own = d.Body })
	for range many {
		s.must("POST", "runs/delete", obj{"run_id": s.newRun("0", nil)})
	}
	before = s.updates()
	if n, err := s.s.Collect(t.Context(), time.Now().Add(time.Second)); n != many+1 || err != nil {
		t.Errorf("%d runs were removed: %v", n, err)
	}
	if n := s.updates() - before; n > 12 {
		t.Errorf("%d updates", n)
	}
}

// edit writes a document as something else would.
func (s *server) edit(kind, name string, change func(*store.Doc)) {
	s.t.Helper()
	err := s.db.Update(s.t.Context(), func(tx *store.Tx) error {
		d, err := tx.Get(s.ws.Key, kind, name, "")
		if err == nil {
			if d.Body == nil {
				d.Body = d.Own // to have it later
			}
			change(d)
			err = tx.Save(d)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// TestOnlyDeletedRunsAreLookedAt: to know whether a workspace that nobody uses has something to
// remove, only what is deleted is read, also what was deleted by a server that did not mark it.
func TestOnlyDeletedRunsAreLookedAt(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	live, gone := s.newRun("0", nil), s.newRun("0", nil)
	s.must("POST", "runs/delete", obj{"run_id": gone})
	s.stop()
	s = start(t, dir)
	var log bytes.Buffer
	s.s.Log = slog.New(slog.NewTextHandler(&log, nil))
	s.edit("mlflow/runs", gone, func(d *store.Doc) { d.Status = "" })
	collect := func(before time.Time, want int) {
		t.Helper()
		if n, err := s.s.Collect(t.Context(), before); n != want || err != nil || log.Len() > 0 && want == 0 {
			t.Errorf("%d runs were removed, want %d: %v %s", n, want, err, log.String())
		}
	}
	collect(time.Now().Add(-time.Hour), 0)
	s.edit("mlflow/runs", live, func(d *store.Doc) { d.Own = []byte(`{"ID": 1}`) })
	collect(time.Now().Add(-time.Hour), 0)
	s.edit("mlflow/runs", live, func(d *store.Doc) { d.Own = d.Body })
	collect(time.Now().Add(time.Second), 1)
}
