package api

import (
	"net/http"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/filewatch"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/store"
)

// jobService serves what Azure lacks below a job: explain, events, tasks, logs.
type jobService struct {
	db         *store.DB
	blobs      *blob.Store
	watcher    *filewatch.Watcher
	kindOf     func(jobType string) (kind.Kind, error)
	docs       *documentService
	workspaces *workspaceService
	events     *eventService
	health     *healthService
	input      *inputService
}

// jobExtra serves what Azure lacks below a job: explain, events, logs, input. done is false when p
// is none of these.
func (s *jobService) jobExtra(c *call, p []string) (done bool, err error) {
	if c.r.Method != http.MethodGet {
		return false, nil
	}
	switch {
	case fold(p, 2, "explain") && len(p) == 3:
		return true, s.explain(c, p[1])
	case fold(p, 2, "events") && len(p) == 3:
		d, _, err := s.job(c, p[1])
		if err != nil {
			return true, err
		}
		return true, s.events.events(c, c.ws.Key(), "jobs/"+d.Name)
	case fold(p, 2, "tasks") && len(p) == 3:
		return true, s.jobTasks(c, p[1])
	case fold(p, 2, "input") && len(p) == 3:
		return true, s.input.input(c, p[1])
	case fold(p, 2, "shell") && len(p) == 3:
		return true, instanceCall{c}.shell(p[1])
	case fold(p, 2, "logs"):
		return true, s.logs(c, p[1], p[3:])
	}
	return false, nil
}

func (s *jobService) jobTasks(c *call, name string) error {
	var tasks []*berth.Task
	err := s.db.View(c.ctx(), func(tx *store.Tx) (err error) {
		if _, err = tx.Get(c.ws.Key(), "jobs", name, ""); err != nil {
			return c.missing(err, s.docs.row("jobs"), name, "")
		}
		tasks, err = tx.TasksOf(c.ws.Key(), name)
		return err
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, map[string]any{"value": tasks})
}
