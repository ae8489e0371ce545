package api

import (
	"net/http"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// operationService serves the status and the result of long-running operations.
type operationService struct {
	locate.Locator
	db         *store.DB
	docs       *documentService
	workspaces *workspaceService
	templates  *templateService
}

// A long-running operation has no record of its own: its status is the state of the resource it is
// about. The status URL names the verb and the resource, so it outlives the server.

// operation puts the headers of a long-running operation on the answer: where its status is, and
// where its result will be.
func (c *call) operation(verb, id string) {
	h := c.w.Header()
	h.Set("Azure-AsyncOperation", c.s.BaseURL+"/opstatus/"+verb+id+"?api-version=2024-10-01")
	h.Set("Location", c.s.BaseURL+"/opresult/"+verb+id+"?api-version=2024-10-01")
	h.Set("Retry-After", "1")
}

// progress is how an operation stands.
type progress struct {
	verb    string
	row     *resource // nil for a workspace
	name    string
	version string // or what it is called on a second level
	status  string
	failure string // why it failed

	deployment *deployment // nil for a resource
}

// progress reads the address of an operation, and how it stands.
func (s *operationService) progress(c *call) (*progress, error) {
	path, err := segments(c.r.URL.EscapedPath())
	if err != nil {
		return nil, err
	}
	p := &progress{verb: path[1], status: "Succeeded"}
	path = path[2:]
	if len(path) < 8 || !fold(path, 0, "subscriptions") {
		return nil, notFound(c)
	}
	if len(path) == 8 && fold(path, 5, "Microsoft.Resources") {
		p.deployment, err = s.templates.load(c, path[1], path[3], path[7])
		if err != nil {
			return nil, err
		}
		p.name, p.status, p.failure = path[7], p.deployment.operation(), p.deployment.failure()
		return p, nil
	}
	if len(path) >= 10 {
		if p.row = s.docs.row(path[8]); p.row == nil {
			return nil, notFound(c)
		}
		p.name = path[9]
		if len(path) >= 12 {
			p.version = path[11]
		}
	}
	err = s.workspaces.enter(c, berth.Workspace{Subscription: path[1], Group: path[3], Name: path[7]})
	if err == nil && p.row != nil {
		err = s.db.View(c.ctx(), func(tx *store.Tx) error {
			d, err := tx.Get(c.ws.Key(), p.row.kind(p.version), p.name, p.version)
			if err != nil {
				return err
			}
			p.status, p.failure = opState(p.verb, d)
			return nil
		})
	}
	gone := berth.CodeOf(err) == berth.NotFound
	switch {
	case gone && p.verb != "delete":
		p.status, p.failure = "Failed", "the resource no longer exists"
	case gone:
	case err != nil:
		return nil, err
	case p.verb == "delete":
		p.status = "InProgress"
	}
	if p.status == "InProgress" {
		c.w.Header().Set("Retry-After", "1")
	}
	return p, nil
}

// operation answers a status URL.
func (s *operationService) operation(c *call) error {
	p, err := s.progress(c)
	if err != nil {
		return err
	}
	out := map[string]any{"id": c.r.URL.Path, "name": p.name, "status": p.status, "startTime": stamp(c.now)}
	if p.failure != "" {
		out["error"] = map[string]any{"code": operationFailed, "message": p.failure}
	}
	return c.send(http.StatusOK, out)
}

const operationFailed = "OperationFailed"

// result answers the place of a result: 202 as long as there is none, then what was made, or
// nothing.
func (s *operationService) result(c *call) error {
	p, err := s.progress(c)
	switch {
	case err != nil:
		return err
	case p.status == "InProgress":
		c.w.Header().Set("Location", s.BaseURL+c.r.URL.RequestURI())
		return c.send(http.StatusAccepted, map[string]any{})
	case p.status != "Succeeded":
		return &berth.Error{Code: berth.Conflict, Wire: operationFailed, Msg: orElse(p.failure, "the operation ended as "+p.status)}
	case p.deployment != nil:
		return c.send(http.StatusOK, p.deployment.shown())
	case p.verb == "put" && p.row != nil:
		d, err := s.docs.load(c, p.row, p.name, p.version)
		if err != nil {
			return err
		}
		return c.sendDoc(http.StatusOK, p.row, d)
	}
	return c.empty(http.StatusOK)
}

// opState is what a resource's state says about the operation verb on it.
func opState(verb string, d *store.Doc) (status, failure string) {
	if d.Kind == "jobs" {
		if verb == "cancel" && !berth.JobStatus(d.Status).Terminal() {
			return "InProgress", ""
		}
		return "Succeeded", ""
	}
	own, err := store.State[struct {
		State    string               `json:"provisioningState"`
		Error    string               `json:"error"`
		Instance *berth.InstanceState `json:"instance"`
	}](d)
	if err != nil {
		return "Failed", "the resource's record is damaged"
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
