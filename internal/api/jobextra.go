package api

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// jobExtra serves what Azure lacks below a job: explain, events, logs. done is false when p is none of these.
func (s *Server) jobExtra(c *call, p []string) (done bool, err error) {
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
		return true, s.events(c, c.ws.Key(), "jobs/"+d.Name)
	case fold(p, 2, "tasks") && len(p) == 3:
		return true, s.jobTasks(c, p[1])
	case fold(p, 2, "logs"):
		return true, s.logs(c, p[1], p[3:])
	}
	return false, nil
}

func (s *Server) jobTasks(c *call, name string) error {
	var tasks []*berth.Task
	err := s.DB.View(c.ctx(), func(tx *store.Tx) (err error) {
		if _, err = tx.Get(c.ws.Key(), "jobs", name, ""); err != nil {
			return c.missing(err, s.row("jobs"), name, "")
		}
		tasks, err = tx.TasksOf(c.ws.Key(), name)
		return err
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, map[string]any{"value": tasks})
}

// explain answers why a job is where it is: the reason now, who is ahead, and how it came there.
func (s *Server) explain(c *call, name string) error {
	out := map[string]any{}
	err := s.DB.View(c.ctx(), func(tx *store.Tx) error {
		d, err := tx.Get(c.ws.Key(), "jobs", name, "")
		if err != nil {
			return c.missing(err, s.row("jobs"), name, "")
		}
		var st berth.JobState
		if err := json.Unmarshal(d.Own, &st); err != nil {
			return err
		}
		out["name"], out["status"], out["reason"], out["compute"], out["times"] = d.Name, d.Status, st.Reason, st.Compute, st.Times
		out["exit"], out["usage"] = st.Exit, st.Usage
		if d.Status == string(berth.Queued) {
			ahead, running, err := queue(tx, d, st.Compute)
			if err != nil {
				return err
			}
			out["ahead"], out["running"] = ahead, running
		}
		out["advice"] = advice(berth.JobStatus(d.Status), st, d.Name)
		evs, err := tx.Events(store.EventQuery{Workspace: c.ws.Key(), Subject: "jobs/" + d.Name, Limit: 200})
		out["history"] = evs
		return err
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, out)
}

// queue counts the tasks of a compute that wait before a job's, and names those that run.
func queue(tx *store.Tx, d *store.Doc, compute string) (ahead int, running []string, err error) {
	tasks, err := tx.ActiveTasks()
	seen := false
	for _, t := range tasks {
		if t.Compute != compute {
			continue
		}
		switch {
		case t.Job == d.Name && t.Workspace == d.Workspace:
			seen = true
		case t.State != berth.TaskWaiting:
			running = append(running, t.Job)
		case !seen:
			ahead++
		}
	}
	return ahead, running, err
}

// advice is what the user can do now, as commands.
func advice(s berth.JobStatus, st berth.JobState, name string) []string {
	switch {
	case s == berth.Failed && st.Exit != nil && st.Exit.OOM:
		return []string{"it ran out of memory: use a smaller batch or a larger target", "berth logs " + name}
	case s == berth.Failed && st.Exit != nil && st.Exit.Cause == "timeout":
		return []string{"raise limits.timeout, or make the job shorter", "berth logs " + name}
	case s == berth.Failed && st.Times.Started.IsZero():
		return []string{"mend what the reason says and submit it again; its command never ran"}
	case s == berth.Failed:
		return []string{"berth logs " + name + " --tail 50"}
	case s == berth.Queued:
		return []string{"berth ps", "berth job cancel -n " + name}
	case s == berth.Completed:
		return []string{"berth job download -n " + name + " --all"}
	case s.Terminal():
		return []string{fmt.Sprintf("berth logs %s", name)}
	}
	return []string{"berth logs -f " + name}
}
