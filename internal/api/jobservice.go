package api

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

func serviceOf(m map[string]any) berth.JobService {
	return berth.JobService{Type: text(m, "jobServiceType")}
}

// keepServices leaves of a job's services those that it asks for, without what only the server
// says.
func keepServices(props map[string]any) {
	all, ok := props["services"].(map[string]any)
	if !ok {
		delete(props, "services")
		return
	}
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil || serviceOf(asMap(v)).Own() })
	for _, v := range all {
		for _, k := range []string{"endpoint", "status", "errorMessage"} {
			delete(asMap(v), k)
		}
	}
	if len(all) == 0 {
		delete(props, "services")
	}
}

// noServices refuses a job with children that asks for services: it runs no process of its own.
func noServices(props map[string]any) error {
	if names := slices.Sorted(maps.Keys(asMap(props["services"]))); len(names) > 0 {
		return berth.Errorf(berth.Invalid, "properties.services.%s: a job of type %s has no services; give them to a command", names[0], text(props, "jobType"))
	}
	return nil
}

// checkServices refuses services that cannot be started on a compute, or cannot be reached there.
func (c jobCall) checkServices(tx *store.Tx, compute string, props map[string]any) error {
	if len(asMap(props["services"])) == 0 {
		return nil
	}
	if kind := orElse(text(props, "jobType"), "Command"); !strings.EqualFold(kind, "Command") {
		return noServices(props)
	}
	raw, err := json.Marshal(props)
	if err != nil {
		return err
	}
	var v berth.CommandJob
	if err := json.Unmarshal(raw, &v); err != nil {
		return berth.Errorf(berth.Invalid, "properties: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(v.Services)) {
		if v.Services[name].Own() {
			continue
		}
		err := checkService(name, v.Services[name], v.Resources.InstanceCount)
		if err == nil {
			err = c.reachable(tx, compute, v.Services[name].Kind())
		}
		if err != nil {
			return berth.Errorf(berth.CodeOf(err), "properties.services.%s: %w", name, err)
		}
	}
	return nil
}

func checkService(name string, s berth.JobService, nodes int) error {
	switch {
	case berth.CheckName("service", name) != nil:
		return berth.CheckName("service", name)
	case s.Type == "":
		return berth.Errorf(berth.Invalid, "it has no type, or one that is not known: use ssh, jupyter_lab, tensor_board or vs_code")
	case s.Kind() == "":
		return berth.Errorf(berth.Invalid, "there are no services of type %s: use ssh, jupyter_lab, tensor_board or vs_code", s.Type)
	case len(s.Nodes) > 0 && string(s.Nodes) != "null" && nodes > 1:
		return berth.Errorf(berth.Unsupported, "services run on the first node of a job, not on all of them: leave nodes out")
	case s.Port != 0 && (s.Port < 1024 || s.Port > 65535):
		return berth.Errorf(berth.Invalid, "port %d is not one between 1024 and 65535; leave it out for one that is free", s.Port)
	}
	return nil
}

// reachable refuses a service on a compute where the server does not reach it.
func (c jobCall) reachable(tx *store.Tx, compute, kind string) error {
	if berth.IsLocal(compute) || compute == "" {
		return nil
	}
	d, err := tx.Get(c.ws.Key(), "computes", compute, "")
	if berth.CodeOf(err) == berth.NotFound {
		return nil // a pool that is made for the job
	}
	if err != nil {
		return err
	}
	spec, err := berth.ReadPool(d.Body)
	if err != nil {
		return err
	}
	st, err := target.State(d)
	if err != nil {
		return err
	}
	switch {
	case spec.Provider != "":
		return berth.Errorf(berth.Unsupported, "the nodes of cluster %s are on %s, where the server does not reach ports of jobs: name %s itself if it is a Kubernetes cluster, or local", compute, spec.Provider, spec.Provider)
	case !spec.Attached():
		return nil
	case st.Attached.Unasked():
		return berth.Errorf(berth.Unavailable, "compute %s has not been connected yet, so it is not known whether services can be reached there; try again when it is", compute)
	case !st.Attached.Dials:
		return berth.Errorf(berth.Unsupported, "the server does not reach ports of jobs on compute %s: services are for local, clusters and instances of this server, attached machines, and Kubernetes", compute)
	case kind == berth.ServiceSSH:
		return berth.Errorf(berth.Unsupported, "compute %s runs no shells beside jobs: services of type ssh are for local, clusters and instances of this server", compute)
	}
	return nil
}

// shownServices are the services of a job: those that every job has, and its own with their state.
func (c *call) shownServices(d *store.Doc, asked map[string]any) map[string]any {
	out := map[string]any{
		"Studio":   map[string]any{"jobServiceType": "Studio", "endpoint": portal + "/runs/" + d.Name + "?wsid=" + c.ws.ID()}, // clients add the tenant
		"Tracking": map[string]any{"jobServiceType": "Tracking", "endpoint": c.ws.AzureTrackingURI(c.s.BaseURL)},
	}
	if len(asked) == 0 {
		return out
	}
	st, err := job.State(d)
	if err != nil {
		c.s.Log.Error("state of a job does not parse", "job", d.Name, "err", err)
	}
	status := berth.JobStatus(d.Status)
	for name, v := range asked {
		m := maps.Clone(asMap(v))
		kind := serviceOf(m).Kind()
		if m == nil || kind == "" {
			continue
		}
		is := st.Services[name]
		if kind == berth.ServiceSSH && status == berth.Running {
			is.Status = berth.ServiceRunning
		}
		switch {
		case status.Terminal() && is.Status != berth.ServiceFailed:
			is = berth.ServiceState{Status: berth.ServiceStopped}
		case is.Status == "":
			is.Status = berth.ServiceStarting
		}
		m["status"], m["errorMessage"] = is.Status, nil
		if is.Error != "" {
			m["errorMessage"] = is.Error
		}
		if is.Port != 0 {
			m["port"] = is.Port
		}
		if is.Status == berth.ServiceRunning {
			m["endpoint"] = c.s.BaseURL + berth.ServicePath(c.ws, d.Name, name) + "/"
			if kind == berth.ServiceSSH {
				m["endpoint"] = c.s.BaseURL + c.ws.ID() + "/jobs/" + d.Name + "/shell"
			}
		}
		out[name] = m
	}
	return out
}

// serviceInstance is a service as the history of runs shows it.
func serviceInstance(m map[string]any) map[string]any {
	out := map[string]any{"type": m["jobServiceType"], "port": m["port"], "status": m["status"], "endpoint": m["endpoint"], "properties": m["properties"], "error": nil}
	if why := text(m, "errorMessage"); why != "" {
		out["error"] = map[string]any{"error": map[string]any{"code": "UserError", "message": why}}
	}
	return out
}

// noteServices writes what a runner reports of the services of a task.
func noteServices(tx *store.Tx, t *berth.Task, now map[string]berth.ServiceState) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		s, was := now[name], t.Services[name]
		if s == was || s.Status == berth.ServiceStarting {
			continue
		}
		data := map[string]any{"name": name, "status": s.Status}
		if s.Status == berth.ServiceFailed {
			tx.Emit(taskEvent(t, berth.EventJobWarning, "service "+name+" does not run: "+s.Error, nil))
		}
		reason := "service " + name + " is " + s.Status
		if s.Status == berth.ServiceRunning {
			reason += "; `berth open " + t.Job + " " + name + "` opens it"
		}
		tx.Emit(taskEvent(t, berth.EventJobService, reason, data))
	}
	t.Services = now
}
