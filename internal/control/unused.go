package control

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berthml/berth"
)

// asked is what a job's document can ask for that some computes, or this server, have no use for.
type asked struct {
	Identity *struct {
		Type string `json:"identityType"`
	} `json:"identity"`
	Resources struct {
		InstanceType     string   `json:"instanceType"`
		Locations        []string `json:"locations"`
		MaxInstanceCount int      `json:"maxInstanceCount"`
	} `json:"resources"`
	QueueSettings struct {
		JobTier string `json:"jobTier"`
	} `json:"queueSettings"`
}

// unused says what a job asks for in vain on a pool, one sentence each. What keeps a job from
// running is refused when it is submitted; this is what it runs without.
func (p *pool) unused(props json.RawMessage) (out []string) {
	var a asked
	if err := json.Unmarshal(props, &a); err != nil {
		return nil // it was checked when it was submitted
	}
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if a.Identity != nil && a.Identity.Type != "" && !strings.EqualFold(a.Identity.Type, "AMLToken") {
		say("identity has no effect: jobs have no identities of Azure here; they access the workspace with a token of their own")
	}
	r := a.Resources
	if len(r.Locations) > 0 {
		say("resources.locations has no effect: the job runs where its compute is")
	}
	if r.MaxInstanceCount > 0 {
		say("resources.max_instance_count has no effect: the job gets resources.instance_count nodes")
	}
	var job berth.CommandJob
	if err := json.Unmarshal(props, &job); err != nil {
		return out
	}
	if name, err := job.Compute(); err != nil || name == "" {
		return out // its pool was made as it asks
	}
	if r.InstanceType != "" && !p.hasType(r.InstanceType) {
		say("resources.instance_type %s has no effect: compute %s has no types of instances to choose from", r.InstanceType, p.name)
	}
	if t := a.QueueSettings.JobTier; t != "" && !strings.EqualFold(t, "Null") {
		say("queue_settings.job_tier has no effect: it chooses a pool of nodes for jobs that name no compute, and this one names %s", p.name)
	}
	return out
}

// hasType says whether a pool heeds an instance type: the driver of Kubernetes chooses by it, and
// the nodes of a cluster may be what is asked for.
func (p *pool) hasType(name string) bool {
	switch {
	case strings.EqualFold(p.spec.ComputeType, "Kubernetes"):
		return true
	case p.spec.Cluster():
		return strings.EqualFold(p.spec.Properties.VMSize, name)
	}
	return false
}

// tellUnused makes an event of each thing that a job asks for in vain.
func (cy *cycle) tellUnused(p *pool, j *jobWork) {
	for _, why := range p.unused(j.props) {
		cy.tx.Emit(berth.Event{Workspace: j.doc.Workspace, Subject: "jobs/" + j.doc.Name, Type: berth.EventJobWarning, Reason: why})
	}
}
