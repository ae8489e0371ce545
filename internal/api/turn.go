package api

import (
	"encoding/json"
	"net/http"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// turn answers a runner that takes several tasks in turn. Only the server that leads can: its
// drivers know which task is whose.
func (s *runnerService) turn(c *call) error {
	id := berth.TaskID(c.r.PathValue("id"))
	if c.who.Task != id {
		return berth.Errorf(berth.Denied, "this token does not open task %s", id)
	}
	var ask berth.Turn
	if err := c.into(&ask); err != nil {
		return err
	}
	if passed, err := c.passOn(s.front.PassOn); passed || err != nil {
		return err
	}
	var t *berth.Task
	err := s.db.View(c.ctx(), func(tx *store.Tx) (err error) {
		t, err = tx.Task(id)
		return err
	})
	if err != nil {
		return err
	}
	if s.front.Tasks.Turn == nil {
		return berth.Errorf(berth.Unsupported, "this server gives out no tasks in turn")
	}
	answer, err := s.front.Tasks.Turn(c.ctx(), t, ask)
	if err != nil {
		return err
	}
	b, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, b)
}
