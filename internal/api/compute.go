package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// Computes. A handler only writes what is wanted: the control loop makes clusters as large as they
// should be, the instance loop starts and stops instances.

// reservedCompute says that a name is not a user's to give.
func reservedCompute(name string) bool {
	return berth.IsLocal(name) || strings.EqualFold(name, serverless)
}

// mergeCompute is a change of a compute that exists. Its type and size stay: another size is
// another compute.
func (c computeCall) mergeCompute(tx *store.Tx, r *resource, d *store.Doc, body, props map[string]any, patch bool) (map[string]any, map[string]any, error) {
	old := map[string]any{}
	if err := decodeJSON(d.Body, &old); err != nil {
		return nil, nil, err
	}
	was, err := object(old, "properties")
	if err != nil {
		return nil, nil, err
	}
	for _, f := range []string{"computeType"} {
		if v, ok := props[f]; ok && !strings.EqualFold(text(props, f), text(was, f)) {
			return nil, nil, berth.Errorf(berth.Conflict, "compute %s is of type %s and cannot become %v; delete it, or choose another name", d.Name, text(was, f), v)
		}
	}
	if props["properties"] == nil {
		delete(props, "properties") // nothing is said about them
		patch = true
	}
	if body, props, err = writeCall(c).merge(tx, r, d, body, props, patch); err != nil {
		return nil, nil, err
	}
	setDefault(props, "computeType", was["computeType"])
	return body, props, nil
}

// checkCompute refuses what could not be, and writes what is wanted into st.
func (c computeCall) checkCompute(tx *store.Tx, d *store.Doc, body, props map[string]any, st *berth.ComputeState, created bool) error {
	inner, _ := props["properties"].(map[string]any)
	if err := oneReading(body, props, inner); err != nil {
		return err
	}
	setDefault(props, "computeLocation", locationOf(c.call, body))
	switch typ := text(props, "computeType"); {
	case strings.EqualFold(typ, berth.TypeCluster):
		return c.checkCluster(tx, d, body, props, st, created)
	case strings.EqualFold(typ, berth.TypeInstance):
		return checkInstance(c.call, tx, d, props, st, created)
	default:
		err := c.checkAttached(d, body, st, created)
		if berth.CodeOf(err) == berth.Unsupported {
			return berth.Errorf(berth.Unsupported, "this server has no computes of type %s; docs/clusters.md, docs/instances.md and docs/attached.md say which it has", orNone(typ))
		}
		return err
	}
}

// maxNodes bounds what a cluster may be asked for, idleTime is how long its nodes stay idle when
// nobody says.
const (
	maxNodes = 10000
	idleTime = "PT120S"
)

// checkCluster refuses a cluster that could not be.
func (c computeCall) checkCluster(tx *store.Tx, d *store.Doc, body, props map[string]any, st *berth.ComputeState, created bool) error {
	raw, err := json.Marshal(props)
	if err != nil {
		return err
	}
	var v berth.ComputeProps
	if err := json.Unmarshal(raw, &v); err != nil {
		return berth.Errorf(berth.Invalid, "properties: %w", err)
	}
	inner := v.Properties
	if p := inner.VMPriority; p != "" && !strings.EqualFold(p, "Dedicated") && !strings.EqualFold(p, "LowPriority") {
		return berth.Errorf(berth.Invalid, "properties.properties.vmPriority %q is not Dedicated or LowPriority", p)
	}
	if err := checkScale(inner.ScaleSettings, props); err != nil {
		return err
	}
	if err := checkTags(body); err != nil {
		return err
	}
	if !created {
		if err := keepSize(d, &inner.VMSize, props); err != nil {
			return err
		}
	}
	size, err := c.s.sizes.checkSize(c.call, tx, inner.VMSize, locationOf(c.call, body), berth.TypeCluster, v.Low())
	if err != nil {
		return err
	}
	site, err := c.checkProvider(tx, d, body, created)
	if err != nil {
		return err
	}
	st.Warnings = nil
	if site == "" {
		if st.Warnings, err = c.s.sizes.fits(d.Name, size); err != nil {
			return err
		}
	}
	limits, err := c.limitWarnings(tx, v, size)
	if err != nil {
		return err
	}
	st.Warnings = append(st.Warnings, limits...)
	if st.IdleCost, err = c.keptCost(tx, v); err != nil {
		return err
	}
	st.State = map[bool]string{true: "Creating", false: "Updating"}[created]
	return nil
}

// checkScale refuses a range of nodes that could not be, and writes the one that holds where none
// is given.
func checkScale(sc *berth.ScaleSettings, props map[string]any) error {
	if sc == nil {
		if p, ok := props["properties"].(map[string]any); ok {
			p["scaleSettings"] = map[string]any{"minNodeCount": 0, "maxNodeCount": 1, "nodeIdleTimeBeforeScaleDown": idleTime}
		}
		return nil
	}
	lo, hi := sc.MinNodeCount, sc.MaxNodeCount
	switch {
	case lo < 0:
		return berth.Errorf(berth.Invalid, "min_instances is %d; it cannot be less than 0", lo)
	case hi < 1:
		return berth.Errorf(berth.Invalid, "max_instances is %d; a cluster needs at least 1", hi)
	case lo > hi:
		return berth.Errorf(berth.Invalid, "min_instances (%d) is more than max_instances (%d)", lo, hi)
	case hi > maxNodes:
		return berth.Errorf(berth.Invalid, "max_instances is %d; at most %d are allowed", hi, maxNodes)
	}
	idle, err := berth.ParseDuration(sc.IdleTime)
	switch {
	case err != nil:
		return berth.Errorf(berth.Invalid, "idle_time_before_scale_down: %w", err)
	case idle < 0:
		return berth.Errorf(berth.Invalid, "idle_time_before_scale_down is negative")
	}
	// Azure's clients drop a 0, so the default applies and is shown.
	if m := asMap(dig(props, "properties.scaleSettings")); m != nil && sc.IdleTime == "" {
		m["nodeIdleTimeBeforeScaleDown"] = idleTime
	}
	return nil
}

// keepSize fills in the size that a cluster has, and refuses another.
func keepSize(d *store.Doc, size *string, props map[string]any) error {
	var was struct {
		Properties berth.ComputeProps `json:"properties"`
	}
	if err := json.Unmarshal(d.Body, &was); err != nil {
		return err
	}
	old := was.Properties.Properties.VMSize
	switch {
	case *size == "":
		props["properties"].(map[string]any)["vmSize"], *size = old, old
	case !strings.EqualFold(old, *size):
		return berth.Errorf(berth.Conflict, "cluster %s has size %s, which cannot change; create another cluster for %s", d.Name, old, *size)
	}
	return nil
}

// checkTags refuses values of the tags that we read and cannot understand.
func checkTags(body map[string]any) error {
	given, err := object(body, "tags")
	if err != nil {
		return err
	}
	tags := map[string]string{}
	for k, v := range given {
		switch v := v.(type) {
		case string:
			tags[k] = v
		case nil:
		case bool, json.Number:
			tags[k] = fmt.Sprint(v)
		default:
			return berth.Errorf(berth.Invalid, "tag %s must be a string", k)
		}
	}
	if v := tags[berth.TagJobsPerNode]; v != "" {
		if n, err := strconv.Atoi(v); err != nil || n < 1 || n > 1000 {
			return berth.Errorf(berth.Invalid, "tag %s is %q; give a number from 1 to 1000", berth.TagJobsPerNode, v)
		}
	}
	if v := tags[berth.TagPlacement]; v != "" && v != "pack" && v != "spread" {
		return berth.Errorf(berth.Invalid, "tag %s is %q; it is pack or spread", berth.TagPlacement, v)
	}
	return nil
}

func locationOf(c *call, body map[string]any) string {
	if l := text(body, "location"); l != "" {
		return l
	}
	return c.s.Location
}

// shapeCompute adds what the service knows: states, counts, errors.
func shapeCompute(c *call, d *store.Doc, p map[string]any) {
	setDefault(p, "properties", map[string]any{})
	setDefault(p, "computeLocation", c.s.Location)
	p["createdOn"], p["modifiedOn"] = stamp(d.Created), stamp(d.Updated)
	setDefault(p, "provisioningErrors", nil)
	setDefault(p, "isAttachedCompute", false)
	st, err := target.State(d)
	if err != nil {
		p["provisioningState"] = "Unknown"
		return
	}
	p["provisioningState"] = orElse(st.State, "Succeeded")
	if st.Error != "" {
		p["provisioningErrors"] = []any{map[string]any{"error": map[string]any{"code": "ProvisioningFailed", "message": st.Error}}}
	}
	switch typ := text(p, "computeType"); {
	case strings.EqualFold(typ, berth.TypeInstance):
		shapeInstance(c, d, st, p)
	case strings.EqualFold(typ, berth.TypeCluster):
		shapeCluster(c, d, st, p)
	case st.Attached != nil || strings.EqualFold(typ, berth.TypeMachine):
		shapeAttached(d, st, p)
	}
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// shapeCluster counts the nodes as they are now.
func shapeCluster(c *call, d *store.Doc, st berth.ComputeState, p map[string]any) {
	inner, ok := p["properties"].(map[string]any)
	if !ok {
		return
	}
	setDefault(inner, "vmPriority", "Dedicated")
	setDefault(inner, "osType", "Linux")
	setDefault(inner, "remoteLoginPortPublicAccess", "NotSpecified")
	counts := map[berth.NodeState]int{}
	nodes, st, err := c.s.computes.nodes(c, d, st)
	if err != nil {
		c.s.Log.Error("nodes not read", "compute", d.Name, "err", err)
	}
	for _, n := range nodes {
		counts[n.State]++
	}
	inner["nodeStateCounts"] = map[string]any{
		"idleNodeCount": counts[berth.NodeIdle], "runningNodeCount": counts[berth.NodeRunning], "preparingNodeCount": counts[berth.NodePreparing],
		"unusableNodeCount": counts[berth.NodeUnusable], "leavingNodeCount": counts[berth.NodeLeaving], "preemptedNodeCount": counts[berth.NodePreempted],
	}
	inner["currentNodeCount"] = counts[berth.NodeIdle] + counts[berth.NodeRunning] + counts[berth.NodePreempted] + counts[berth.NodeLeaving]
	inner["targetNodeCount"] = st.Target
	inner["allocationState"] = map[bool]string{true: "Resizing", false: "Steady"}[counts[berth.NodePreparing]+counts[berth.NodeLeaving] > 0]
	changed := st.Changed
	if changed.IsZero() {
		changed = d.Created
	}
	inner["allocationStateTransitionTime"] = stamp(changed)
	inner["errors"] = nil
	if len(st.Errors) > 0 {
		var list []any
		for _, e := range st.Errors {
			list = append(list, map[string]any{"error": map[string]any{"code": "NodeAllocationFailed", "message": e}})
		}
		inner["errors"] = list
	}
	// "berth" is ours: why the cluster has the size it has, and what to know about it.
	p["berth"] = map[string]any{"reason": st.Reason, "short": st.Short, "warnings": warnings(st)}
}

// deleteCompute asks for the end of a compute. One with jobs on it is refused, unless they are to
// end first (drain=true, ours).
func deleteCompute(c *call, r *resource, name string) error {
	if reservedCompute(name) {
		return berth.Errorf(berth.Conflict, "compute %q is always there and cannot be deleted", strings.ToLower(name))
	}
	detach, err := wantsDetach(c)
	if err != nil {
		return err
	}
	drain, _ := strconv.ParseBool(c.q.Get("drain"))
	var d *store.Doc
	err = c.s.DB.Update(c.ctx(), func(tx *store.Tx) (err error) {
		if d, err = tx.Get(c.ws.Key(), r.Collection, name, ""); err != nil {
			return err
		}
		if detach && managed(d) {
			return berth.Errorf(berth.Invalid, "compute %s was created by this server and cannot be detached: only an attached compute can; `berth compute delete -n %s` deletes it", d.Name, d.Name)
		}
		if err := c.ifMatch(tx, r.Collection, name, ""); err != nil {
			return err
		}
		return computeCall{c}.requestDeletion(tx, r, d, drain)
	})
	if berth.CodeOf(err) == berth.NotFound {
		return c.empty(http.StatusNoContent)
	}
	if err != nil {
		return err
	}
	c.operation("delete", c.docID(r, d))
	return c.empty(http.StatusAccepted)
}

// wantsDetach says whether what is behind the compute is to be left alone.
func wantsDetach(c *call) (bool, error) {
	switch action := c.q.Get("underlyingResourceAction"); {
	case action == "", strings.EqualFold(action, "Delete"):
		return false, nil
	case strings.EqualFold(action, "Detach"):
		return true, nil
	default:
		return false, berth.Errorf(berth.Invalid, "underlyingResourceAction %q is not Delete or Detach", action)
	}
}

// requestDeletion writes that a compute is to be deleted, once its jobs have ended where drain says
// so.
func (c computeCall) requestDeletion(tx *store.Tx, r *resource, d *store.Doc, drain bool) error {
	st, err := target.State(d)
	if err != nil {
		return err
	}
	if st.Instance != nil {
		err = c.mayOperate(d, st.Instance)
	} else {
		err = c.madeIt(r, d, "delete")
	}
	if err == nil && st.Attached != nil {
		err = unprovided(tx, d)
	}
	if err != nil || st.Deleting() {
		return err
	}
	if !drain {
		if job, err := busyWith(tx, d); err != nil {
			return err
		} else if job != "" {
			return berth.Errorf(berth.Conflict, "compute %s has jobs (%s); wait for them, cancel them, or delete it with --yes, which lets running jobs end first", d.Name, job)
		}
	}
	st.State, st.Drain = berth.ComputeDeleting, drain
	if st.Instance != nil {
		if err := wantDeleted(c.call, d, &st); err != nil {
			return err
		}
	}
	if err := store.SetState(d, st); err != nil {
		return err
	}
	tx.Emit(berth.Event{Workspace: d.Workspace, Subject: "computes/" + d.Name, Type: berth.EventComputes, Reason: "deletion asked for by " + c.who.User})
	return tx.Save(d)
}

// managed says whether this server made what is behind a compute, which would be lost.
func managed(d *store.Doc) bool {
	spec, err := berth.ReadPool(d.Body)
	return err != nil || strings.EqualFold(spec.ComputeType, berth.TypeCluster) || strings.EqualFold(spec.ComputeType, berth.TypeInstance)
}

// busyWith names a job that is on a compute or waits for it, "" when there is none.
func busyWith(tx *store.Tx, d *store.Doc) (string, error) {
	tasks, err := tx.ActiveTasks()
	for _, t := range tasks {
		if t.Workspace == d.Workspace && strings.EqualFold(t.Compute, d.Name) {
			return t.Job, err
		}
	}
	if err != nil {
		return "", err
	}
	fresh, err := tx.All(store.Query{Workspace: d.Workspace, Kind: "jobs", Status: []string{string(berth.NotStarted)}})
	for _, j := range fresh { // which have no task yet
		if st, err := job.State(j); err == nil && strings.EqualFold(st.Compute, d.Name) {
			return j.Name, err
		}
	}
	return "", err
}
