package api

import (
	"encoding/json"
	"net/http"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// A long-running operation has no record of its own: its status is the state of the resource it is about. The status URL names
// the verb and the resource, so it outlives the server.

// operation puts the headers of a long-running operation on the answer.
func (c *call) operation(verb, id string) {
	u := c.s.BaseURL + "/opstatus/" + verb + id + "?api-version=2024-10-01"
	h := c.w.Header()
	h.Set("Azure-AsyncOperation", u)
	h.Set("Location", u)
	h.Set("Retry-After", "1")
}

// operation answers a status URL.
func (s *Server) operation(c *call) error {
	p, err := segments(c.r.URL.EscapedPath())
	if err != nil {
		return err
	}
	verb, p := p[1], p[2:]
	if len(p) < 8 || !fold(p, 0, "subscriptions") {
		return notFound(c)
	}
	ws := berth.Workspace{Subscription: p[1], Group: p[3], Name: p[7]}
	name, kind := "", "workspaces"
	if len(p) >= 10 {
		r := s.row(p[8])
		if r == nil {
			return notFound(c)
		}
		kind, name = r.Collection, p[9]
	}
	status, failure := "Succeeded", ""
	err = s.enter(c, ws)
	if err == nil && name != "" {
		err = s.DB.View(c.ctx(), func(tx *store.Tx) error {
			d, err := tx.Get(c.ws.Key(), kind, name, "")
			if err != nil {
				return err
			}
			status, failure = opState(verb, d)
			return nil
		})
	}
	gone := berth.CodeOf(err) == berth.NotFound
	switch {
	case gone && verb != "delete":
		status, failure = "Failed", "the resource no longer exists"
	case gone:
	case err != nil:
		return err
	case verb == "delete":
		status = "InProgress"
	}
	if status == "InProgress" {
		c.w.Header().Set("Retry-After", "1")
	}
	out := map[string]any{"id": c.r.URL.Path, "name": name, "status": status, "startTime": stamp(c.now)}
	if failure != "" {
		out["error"] = map[string]any{"code": "OperationFailed", "message": failure}
	}
	return c.send(http.StatusOK, out)
}

// opState is what a resource's state says about the operation verb on it.
func opState(verb string, d *store.Doc) (status, failure string) {
	if d.Kind == "jobs" {
		if verb == "cancel" && !berth.JobStatus(d.Status).Terminal() {
			return "InProgress", ""
		}
		return "Succeeded", ""
	}
	var own struct {
		State    string               `json:"provisioningState"`
		Error    string               `json:"error"`
		Instance *berth.InstanceState `json:"instance"`
	}
	if len(d.Own) > 0 {
		if err := json.Unmarshal(d.Own, &own); err != nil {
			return "Failed", "the resource's record is damaged"
		}
	}
	if own.Instance != nil && own.State != berth.InstanceDeleting {
		return instanceOp(own.Instance)
	}
	switch own.State {
	case "", "Succeeded":
		return "Succeeded", ""
	case "Failed", "Canceled":
		return own.State, own.Error
	}
	return "InProgress", ""
}
