package api_test

import (
	"context"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/api"
	"github.com/berthml/berth/internal/store"
)

// TestTurn: the runner that was started for a task asks which task is next, and nobody else does.
func TestTurn(t *testing.T) {
	x := open(t)
	var asked berth.Turn
	x.h.(*api.Server).Tasks.Turn = func(_ context.Context, task *berth.Task, ask berth.Turn) (berth.TurnAnswer, error) {
		if task.Compute != "site" {
			return berth.TurnAnswer{}, berth.Errorf(berth.Unsupported, "on compute %s a runner has one task", task.Compute)
		}
		asked = ask
		return berth.TurnAnswer{Task: 7}, nil
	}
	err := x.db.Update(t.Context(), func(tx *store.Tx) error {
		for id, compute := range map[berth.TaskID]string{"j.1": "site", "k.1": "other"} {
			if err := tx.InsertTask(&berth.Task{ID: id, Workspace: workspace.Key(), Job: "j", Compute: compute, State: berth.TaskPlaced}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	token := func(id berth.TaskID) string { return x.auth.Keys.TaskToken(id, time.Now().Add(time.Hour)) }
	const at, ask = "/runner/v1/tasks/j.1/turn", `{"array":"b","runner":3,"ended":4}`
	x.as(token("j.1"), "POST", at, ask).want(200).is("task", 7)
	if asked.Array != "b" || asked.Runner != 3 || asked.Ended == nil || *asked.Ended != 4 {
		t.Errorf("asked %+v", asked)
	}
	x.as(token("k.1"), "POST", at, ask).want(403)
	x.as(x.admin, "POST", at, ask).want(403)
	x.as("", "POST", at, ask).want(401)
	x.as(token("j.1"), "POST", at, "{").want(400)
	x.as(token("gone.1"), "POST", "/runner/v1/tasks/gone.1/turn", ask).want(404)
	x.as(token("k.1"), "POST", "/runner/v1/tasks/k.1/turn", ask).says("on compute other a runner has one task")
}
