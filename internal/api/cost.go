package api

import (
	"net/http"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/store"
)

// costService serves spending, budgets and advice.
type costService struct {
	db       *store.DB
	local    berth.LocalTerms
	location string
	machine  sched.Machine
}

// extra serves what Azure lacks below a workspace: spending, budgets, advice, what takes space, the
// end of many jobs, why a compute is as it is. done is false when p is none of these.
func (s *treeService) extra(c *call, p []string) (done bool, err error) {
	get := c.r.Method == http.MethodGet
	switch {
	case fold(p, 0, "cost") && len(p) == 1 && get:
		return true, s.costs.spending(c)
	case fold(p, 0, "advise") && len(p) == 1 && get:
		return true, s.costs.advise(c)
	case fold(p, 0, "budgets") && len(p) <= 2:
		return true, s.costs.budgets(c, p[1:])
	case fold(p, 0, "storage") && len(p) == 1 && get:
		return true, s.storage.use(c)
	case fold(p, 0, "cleanStorage") && len(p) == 1 && c.r.Method == http.MethodPost:
		return true, s.storage.clean(c)
	case fold(p, 0, "cancelJobs") && len(p) == 1 && c.r.Method == http.MethodPost:
		return true, s.jobs.cancelJobs(c)
	case fold(p, 0, "computes") && fold(p, 2, "explain") && len(p) == 3 && get:
		return true, s.computes.explainCompute(c, p[1])
	}
	return false, nil
}

// lookBack is how far spending is looked at where nobody says.
const lookBack = 7 * 24 * time.Hour

// spending answers what a workspace spent: GET cost?by=user,job,compute&since=…&until=….
func (s *costService) spending(c *call) error {
	var by []string
	if v := c.q.Get("by"); v != "" {
		by = strings.Split(strings.ToLower(v), ",")
	}
	if err := cost.CheckKeys(by); err != nil {
		return err
	}
	until, err := c.since("until", c.now)
	if err != nil {
		return err
	}
	since, err := c.since("since", until.Add(-lookBack))
	if err != nil {
		return err
	}
	if since.After(until) {
		return berth.Errorf(berth.Invalid, "since is %s, which is after until, %s", since.Format(time.RFC3339), until.Format(time.RFC3339))
	}
	var out berth.Spending
	err = s.db.View(c.ctx(), func(tx *store.Tx) (err error) {
		out, err = cost.Spending(tx, c.ws.Key(), s.local, by, cost.Window{Since: since, Until: until}, c.now)
		return err
	})
	if err != nil {
		return err
	}
	if out.By == nil {
		out.By = []string{}
	}
	return c.send(http.StatusOK, out)
}
