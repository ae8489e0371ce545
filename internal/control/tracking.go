package control

import (
	"cmp"
	"strings"

	"github.com/berthml/berth"
)

// tracking is where the command of a task logs its metrics: the MLflow server of its workspace.
func (m *move) tracking(ws berth.Workspace, t *berth.Task, experiment string) *berth.LaunchTracking {
	return &berth.LaunchTracking{
		URI:        m.c.o.Locator.BaseURL + ws.TrackingPath(),
		Token:      m.c.o.Keys.TrackToken(t.ID, m.now.Add(launchLife)),
		Experiment: cmp.Or(strings.TrimSpace(experiment), "Default"),
	}
}
