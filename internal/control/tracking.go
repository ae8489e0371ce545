package control

import (
	"cmp"
	"strings"

	"github.com/berthml/berth"
)

// tracking is where the command of a task logs its metrics: the MLflow server of its workspace.
func (cy *cycle) tracking(ws berth.Workspace, t *berth.Task, experiment string) *berth.LaunchTracking {
	return &berth.LaunchTracking{
		URI:        cy.c.o.Locator.BaseURL + ws.TrackingPath(),
		Token:      cy.c.o.Keys.TrackToken(t.ID, cy.now.Add(launchLife)),
		Experiment: cmp.Or(strings.TrimSpace(experiment), "Default"),
	}
}
