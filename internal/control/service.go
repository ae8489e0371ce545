package control

import "github.com/berthml/berth"

// services are those that the runner of a job's first task starts. A shell in it needs none.
func (cy *cycle) services(l *berth.Launch, t *berth.Task, asked map[string]berth.JobService) map[string]berth.LaunchService {
	if t.Rank != 0 {
		return nil
	}
	var out map[string]berth.LaunchService
	for name, s := range asked {
		kind := s.Kind()
		if kind == "" || kind == berth.ServiceSSH {
			continue
		}
		if out == nil {
			out = map[string]berth.LaunchService{}
		}
		base := berth.ServicePath(l.Workspace, l.Job, name)
		out[name] = berth.LaunchService{
			Type: kind, Base: base, Secret: cy.c.o.Keys.ServiceSecret(base), Port: s.Port, LogDir: string(s.Properties["logDir"]),
		}
	}
	return out
}
