// Package target says which compute a job goes to, and makes the pools of jobs that name none.
package target

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Serverless is the compute of jobs that leave it to the server where they run.
const Serverless = "serverless"

// Prefix begins the names of pools that are made for jobs without a compute. They are not listed.
const Prefix = Serverless + "-"

// Size is the size of a job that names more than one node and no size.
const Size = "Standard_DS3_v2"

// ServerlessNodes is how many nodes such a pool can have.
const ServerlessNodes = 100

// A Chooser chooses in one transaction, for one user.
type Chooser struct {
	Tx        *store.Tx
	Workspace berth.Workspace
	User      string
	Admin     bool
	Location  string
	// Size finds the size of a pool that is to be made, and says whether it may be.
	Size func(name string, low bool) (berth.Size, error)
	// NoLocal says that no jobs run on the machine itself: those that name no compute get a pool.
	NoLocal bool
	// Dry makes nothing.
	Dry bool
}

// Of is the name of the compute a job goes to. A job without one, or with the compute serverless,
// that names a size or more than one node gets a pool of its own; one that names neither runs on
// the machine itself.
func (c Chooser) Of(v berth.CommandJob) (string, error) {
	nodes := max(1, v.Resources.InstanceCount)
	name, err := v.Compute()
	if err != nil {
		return "", err
	}
	if name == "" || strings.EqualFold(name, Serverless) {
		if v.Resources.InstanceType == "" && nodes == 1 && !c.NoLocal {
			return berth.LocalCompute, nil
		}
		return c.pool(v, nodes)
	}
	if c.NoLocal && berth.IsLocal(name) {
		return "", berth.Errorf(berth.Denied, "this server runs no jobs on its own machine (local_jobs in its berth.yaml); name a compute, or leave it out for a pool of nodes")
	}
	d, err := c.Tx.Get(c.Workspace.Key(), "computes", name, "")
	if berth.CodeOf(err) == berth.NotFound {
		return "", berth.Missingf("there is no compute %q in workspace %s; `berth compute list` shows what there is", name, c.Workspace.Name)
	}
	if err != nil {
		return "", err
	}
	return d.Name, c.check(d, v, nodes)
}

// check says whether a compute could ever run a job of so many nodes.
func (c Chooser) check(d *store.Doc, job berth.CommandJob, nodes int) error {
	st, err := State(d)
	if err != nil {
		return err
	}
	var v struct {
		Properties berth.ComputeProps `json:"properties"`
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return err
	}
	limit := 1
	if sc := v.Properties.Properties.ScaleSettings; sc != nil && strings.EqualFold(v.Properties.ComputeType, berth.TypeCluster) {
		limit = sc.MaxNodeCount
	}
	attached := v.Properties.Attached()
	if attached && st.Attached != nil {
		limit = max(1, st.Attached.MaxNodes)
	}
	switch {
	case attached && (nodes > 1 || job.Distribution != nil) && st.Attached.Unasked():
		return berth.Errorf(berth.Conflict, "compute %s has not been connected yet, so it is not known whether it can run distributed jobs; submit the job once it is", d.Name)
	case attached && job.Distribution != nil && (st.Attached == nil || !st.Attached.Distributed):
		return berth.Errorf(berth.Invalid, "compute %s cannot run distributed jobs; remove distribution from the job or run it on a cluster", d.Name)
	case strings.EqualFold(v.Properties.ComputeType, "Kubernetes") && hasArgs(job.Resources.ContainerArgs()):
		return berth.Errorf(berth.Invalid, "resources.docker_args cannot be used on compute %s: Kubernetes makes the containers of its jobs; remove it", d.Name)
	case st.Deleting():
		return berth.Errorf(berth.Conflict, "compute %s is being deleted and accepts no more jobs", d.Name)
	case nodes > limit && limit == 1:
		return berth.Errorf(berth.Invalid, "resources.instance_count is %d; compute %s runs a job on one node", nodes, d.Name)
	case nodes > limit && attached:
		return berth.Errorf(berth.Invalid, "resources.instance_count is %d, but compute %s has %d nodes; ask for fewer", nodes, d.Name, limit)
	case nodes > limit:
		return berth.Errorf(berth.Invalid, "resources.instance_count is %d, but compute %s has at most %d nodes; raise max_instances or ask for fewer", nodes, d.Name, limit)
	case st.Instance != nil && st.Instance.User != "" && st.Instance.User != c.User && !c.Admin:
		return berth.Errorf(berth.Denied, "compute %s belongs to %s; only they and administrators may run jobs on it", d.Name, st.Instance.User)
	}
	if !attached {
		return c.checkProvider(d)
	}
	return MayUse(d, c.User, c.Admin)
}

// checkProvider says whether the user may run jobs on what makes the nodes of a compute, if
// something does.
func (c Chooser) checkProvider(d *store.Doc) error {
	spec, err := berth.ReadPool(d.Body)
	if err != nil || spec.Provider == "" {
		return err
	}
	site, err := c.Tx.Get(d.Workspace, "computes", spec.Provider, "")
	if err != nil {
		return err
	}
	return MayUse(site, c.User, c.Admin)
}

// MayUse says whether a user may run jobs on an attached compute: those that the server connects to
// run jobs under the account of the user who attached them.
func MayUse(d *store.Doc, user string, admin bool) error {
	st, err := State(d)
	if err != nil {
		return err
	}
	var v struct {
		Tags berth.Tags `json:"tags"`
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return err
	}
	if st.Attached.Reached() && d.CreatedBy != user && !admin && v.Tags[berth.TagShared] != "true" {
		return berth.Errorf(berth.Denied, "compute %s belongs to %s and runs jobs under their account; only they and administrators may use it, unless its tag %s is true", d.Name, d.CreatedBy, berth.TagShared)
	}
	return nil
}

// hasArgs says whether there are options of a container: a string or a list that is not empty.
func hasArgs(raw json.RawMessage) bool {
	switch strings.TrimSpace(string(raw)) {
	case "", "null", `""`, "[]":
		return false
	}
	return true
}

// State is what the server keeps of a compute beside its document.
func State(d *store.Doc) (berth.ComputeState, error) { return store.State[berth.ComputeState](d) }

// pool makes the pool for jobs of a size, where there is none, or lets it grow. The control loop
// removes it after them.
func (c Chooser) pool(v berth.CommandJob, nodes int) (string, error) {
	low := strings.EqualFold(v.QueueSettings.JobTier, "Spot")
	name := v.Resources.InstanceType
	if name == "" {
		name = Size
	}
	size, err := c.Size(name, low)
	if err != nil {
		return "", berth.Errorf(berth.CodeOf(err), "resources.instance_type: %w", err)
	}
	pool, priority := Prefix+strings.ToLower(size.Name), "Dedicated"
	if low {
		pool, priority = pool+"-low", "LowPriority"
	}
	if c.Dry {
		return pool, nil
	}
	d, err := c.Tx.Get(c.Workspace.Key(), "computes", pool, "")
	if err == nil {
		st, err := State(d)
		if err == nil && st.Deleting() {
			err = berth.Errorf(berth.Unavailable, "the pool for %s is being removed; submit the job again", size.Name)
		}
		if err == nil {
			err = c.letGrow(d, nodes)
		}
		return d.Name, err
	}
	if berth.CodeOf(err) != berth.NotFound {
		return "", err
	}
	body, err := json.Marshal(map[string]any{"location": c.Location, "properties": map[string]any{
		"computeType": berth.TypeCluster, "description": "created for jobs that name no compute",
		"properties": map[string]any{
			"vmSize": size.Name, "vmPriority": priority, "osType": "Linux",
			"scaleSettings": map[string]any{"minNodeCount": 0, "maxNodeCount": max(nodes, ServerlessNodes), "nodeIdleTimeBeforeScaleDown": "PT0S"},
		},
	}})
	if err != nil {
		return "", err
	}
	own, err := json.Marshal(berth.ComputeState{Serverless: true})
	if err != nil {
		return "", err
	}
	c.Tx.Emit(berth.Event{Workspace: c.Workspace.Key(), Subject: "computes/" + pool, Type: berth.EventResourcePut, Reason: "created for a job that names no compute"})
	return pool, c.Tx.Insert(&store.Doc{Workspace: c.Workspace.Key(), Kind: "computes", Name: pool, CreatedBy: c.User, Body: body, Own: own})
}

// letGrow lets a pool have so many nodes at least.
func (c Chooser) letGrow(d *store.Doc, nodes int) error {
	body := map[string]any{}
	if err := json.Unmarshal(d.Body, &body); err != nil {
		return err
	}
	scale := body
	for _, k := range []string{"properties", "properties", "scaleSettings"} {
		scale, _ = scale[k].(map[string]any)
	}
	if most, err := strconv.Atoi(fmt.Sprint(scale["maxNodeCount"])); scale == nil || err == nil && most >= nodes {
		return nil
	}
	scale["maxNodeCount"] = nodes
	var err error
	if d.Body, err = json.Marshal(body); err != nil {
		return err
	}
	c.Tx.Emit(berth.Event{Workspace: d.Workspace, Subject: "computes/" + d.Name, Type: berth.EventResourcePut, Reason: "a job needs more nodes"})
	return c.Tx.Save(d)
}
