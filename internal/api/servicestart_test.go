package api_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/api"
	"github.com/berthml/berth/internal/store"
)

// TestServiceOfStartingJob: who opens a job whose task has not reported yet that it runs waits for
// the report: its log may be seen before it.
func TestServiceOfStartingJob(t *testing.T) {
	x := open(t)
	x.h.(*api.Server).Tasks.Dial = func(context.Context, *berth.Task, int) (net.Conn, error) { return nil, nil }
	x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "true", "services", map[string]any{"s": map[string]any{"jobServiceType": "JupyterLab"}})).want(201)
	task := &berth.Task{ID: "j.1", Workspace: workspace.Key(), Job: "j", User: "root", Attempt: 1, State: berth.TaskStarting}
	write := func(fn func(tx *store.Tx) error) {
		t.Helper()
		if err := x.db.Update(t.Context(), fn); err != nil {
			t.Fatal(err)
		}
	}
	write(func(tx *store.Tx) error { return tx.InsertTask(task) })
	got := make(chan answer, 1)
	go func() { got <- x.do("POST", x.ws+"/jobs/j/open", map[string]any{"service": "s"}) }()
	select {
	case a := <-got:
		t.Fatalf("it did not wait: %s", a.raw)
	case <-time.After(200 * time.Millisecond):
	}
	write(func(tx *store.Tx) error {
		task.State = berth.TaskRunning
		task.Services = map[string]berth.ServiceState{"s": {Status: berth.ServiceRunning}}
		tx.Emit(berth.Event{Workspace: workspace.Key(), Subject: "jobs/j", Type: berth.EventTaskState})
		return tx.SaveTask(task)
	})
	(<-got).want(200)
}
