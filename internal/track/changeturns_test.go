package track_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/berthml/berth/internal/store"
)

// occupied is a database whose writer does something else until it is let.
func (s *server) occupied() (let func()) {
	began, end, done := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		done <- s.db.Update(s.t.Context(), func(*store.Tx) error {
			close(began)
			<-end
			return nil
		})
	}()
	<-began
	return func() {
		close(end)
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	}
}

// tagAtOnce sets tags of a run at the same time.
func (s *server) tagAtOnce(run string, n int) (wait func()) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { s.must("POST", "runs/set-tag", obj{"run_id": run, "key": fmt.Sprint("t", i), "value": "v"}) })
	}
	return all.Wait
}

// TestChangesWaitTheirTurn: however many changes a user makes at a time, few are before the writer
// of the database, which everybody's go through.
func TestChangesWaitTheirTurn(t *testing.T) {
	s := start(t, t.TempDir())
	run, other := s.newRun("0", nil), *s
	other.who.User = "other"
	let := s.occupied()
	wait := s.tagAtOnce(run, 50)
	for n := 0; n < 50; n, _ = s.s.Waiting("u") {
		runtime.Gosched()
	}
	otherWaits := other.tagAtOnce(run, 3)
	for s.s.Changes(s.ws) < 8+3 {
		runtime.Gosched()
	}
	if n := s.s.Changes(s.ws); n != 8+3 {
		t.Errorf("%d changes are before the writer", n)
	}
	let()
	otherWaits()
	wait()
	if tags, _ := at(s.must("GET", "runs/get?run_id="+run, nil), "run", "data", "tags").([]any); len(tags) != 51 {
		t.Errorf("%d tags", len(tags))
	}
}

// TestLargeChangesWaitTheirTurn: of changes that read and write much, one of a user's is made at a
// time, and small ones go on.
func TestLargeChangesWaitTheirTurn(t *testing.T) {
	s := start(t, t.TempDir())
	var tags []obj
	for i := range 100 {
		tags = append(tags, obj{"key": fmt.Sprint("k", i), "value": strings.Repeat("v", 5000)})
	}
	run, small := s.newRun("0", obj{"tags": tags}), s.newRun("0", nil)
	turn, err := s.s.LargeTurn(t.Context(), "u")
	if err != nil {
		t.Fatal(err)
	}
	wait := s.tagAtOnce(run, 20)
	waitNew := s.tagAtOnce(small, 20)
	for n := 0; n < 1+20; _, n = s.s.Waiting("u") {
		runtime.Gosched()
	}
	waitNew()
	if all, _ := s.s.Waiting("u"); all != 0 || s.s.Changes(s.ws) != 0 {
		t.Errorf("%d changes are before the writer; %d have a turn or wait for one", s.s.Changes(s.ws), all)
	}
	other := *s
	other.who.User = "other"
	other.must("POST", "runs/set-tag", obj{"run_id": run, "key": "other", "value": "v"})
	turn()
	wait()
	s.who.User = "other"
	if got, _ := at(s.must("GET", "runs/get?run_id="+run, nil), "run", "data", "tags").([]any); len(got) != 100+1+20+1 {
		t.Errorf("%d tags", len(got))
	}
}

// TestLargerThanNow: a job's tags may be more than a run's: its run is there nevertheless, and
// points and its end can be logged. What is larger than it may be today can be imported again.
func TestLargerThanNow(t *testing.T) {
	s := start(t, t.TempDir())
	s.addJob("j", "u", "e")
	tags := map[string]string{}
	for i := range 100 {
		tags[fmt.Sprint("k", i)] = strings.Repeat("界", 8000)
	}
	s.edit("jobs", "j", func(d *store.Doc) {
		body, err := json.Marshal(obj{"properties": obj{"experimentName": "e", "tags": tags}})
		if err != nil {
			t.Error(err)
		}
		d.Body = body
	})
	s.must("POST", "runs/log-metric", obj{"run_id": "j", "key": "loss", "value": 1, "timestamp": 1})
	s.must("POST", "runs/set-tag", obj{"run_id": "j", "key": "k1", "value": "short"})

	const id = "0123456789abcdef0123456789abcdef"
	again := obj{"run_id": id, "experiment_id": "0", "status": "FINISHED", "from": "http://old"}
	s.must("POST", "/api/2.0/berth/import/run", again)
	dir := s.dir
	s.edit("mlflow/runs", id, func(d *store.Doc) {
		var own obj
		if err := json.Unmarshal(d.Own, &own); err != nil {
			t.Error(err)
		}
		for k, v := range tags {
			own["Tags"].(obj)[k] = v
		}
		var err error
		if d.Own, err = json.Marshal(own); err != nil {
			t.Error(err)
		}
	})
	s.stop()
	s = start(t, dir)
	s.must("POST", "/api/2.0/berth/import/run", again)
}
